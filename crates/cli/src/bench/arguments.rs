//! What can be typed after `sandstorm bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::route::RouteCommand;

/// `sandstorm bench`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Parts that --only takes: fresh, context, exec, create, first, files, numpy, fork, mcp; bare, run, bwrap, runc, \
                  runsc, docker, podman; python, node, bash; burst, throughput, memory, density, server. \
                  Exit codes: 0 measured; 1 something of ours could not be measured."
)]
pub(crate) struct BenchCommand {
    #[command(subcommand)]
    pub(crate) topic: Option<BenchTopic>,
    /// Measure these parts alone, such as `fresh,bwrap,throughput`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Rounds in which all cases take their turn [default: 100]
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Few rounds, short loads, few sandboxes: shows that everything can be measured, not how fast it is
    #[arg(long)]
    pub(crate) quick: bool,
    /// Show the stages of one run, or of a cell in a living context, and their share instead
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "run",
        conflicts_with = "only")]
    pub(crate) trace: Option<Traceable>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Folder to keep the figures in, as JSON, Markdown and a chart
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Measure another build of sandstorm
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
}

/// What is measured instead of sandboxes here.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchTopic {
    /// Replay a trace of providers through the router, beside always using one of them
    Route(RouteCommand),
}

/// What can be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Traceable {
    Run,
    Cell,
}

/// How much of everything is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) rounds: usize,
    /// Rounds that are not counted: the first ones read programs from the disk and fill caches.
    pub(super) warm_up: usize,
    pub(super) load_seconds: f64,
    pub(super) clients: &'static [usize],
    pub(super) burst: usize,
    pub(super) bursts: usize,
    pub(super) sandboxes: usize,
    pub(super) starts: usize,
    pub(super) traced: usize,
}

const FULL: Extent = Extent {
    rounds: 100,
    warm_up: 3,
    load_seconds: 10.0,
    clients: &[1, 4, 16, 64],
    burst: 100,
    bursts: 5,
    sandboxes: 1000,
    starts: 10,
    traced: 200,
};

const QUICK: Extent = Extent {
    rounds: 3,
    warm_up: 1,
    load_seconds: 0.5,
    clients: &[1, 4],
    burst: 8,
    bursts: 1,
    sandboxes: 5,
    starts: 1,
    traced: 5,
};

impl BenchCommand {
    pub(super) fn extent(&self) -> Extent {
        let extent = if self.quick { QUICK } else { FULL };
        Extent { rounds: self.rounds.unwrap_or(extent.rounds).max(1), ..extent }
    }

    /// Whether a part is wanted. Its name has parts of its own: `bwrap-python` is wanted by `bwrap` and by `python`.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.only.is_empty()
            || self.only.iter().any(|word| word == name || name.split('-').any(|part| part == word))
    }
}
