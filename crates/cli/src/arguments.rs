//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sandstorm_types::Space;

use crate::bench::BenchCommand;
use crate::keys::{KeysCommand, TenantsCommand};
use crate::mcp::McpCommand;
use crate::records::{AuditCommand, BackupCommand};
use crate::remote::{
    ContextGroup, FilesGroup, ProvidersCommand, RouteGroup, RunsGroup, SandboxGroup, SnapshotGroup,
    UsageCommand,
};
use crate::serve::ServeCommand;

/// Run untrusted code in a sandbox on this machine.
#[derive(Debug, Parser)]
#[command(name = "sandstorm", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Understood by every command.
#[derive(Debug, Args)]
pub(crate) struct Shared {
    /// Configuration file to read instead of the usual ones
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where caches and state are kept
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program once, in a fresh sandbox
    Run(Box<RunCommand>),
    /// Show which languages can be run here, and how to install the others
    Languages(LanguagesCommand),
    /// Say what this machine allows, and how to get what is missing
    Doctor(DoctorCommand),
    /// Write, check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Serve sandboxes over HTTP
    Serve(ServeCommand),
    /// Offer sandboxes to an assistant as tools, over standard input and output (MCP)
    Mcp(McpCommand),
    /// Make, show and revoke keys of a server
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Make and show tenants of a server
    #[command(subcommand)]
    Tenants(TenantsCommand),
    /// Read and check a server's record of who did what
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Copy a server's database while it runs
    Backup(BackupCommand),
    /// Make and use sandboxes on a server
    Sandbox(SandboxGroup),
    /// Use living interpreters in sandboxes on a server
    Context(ContextGroup),
    /// Use files of sandboxes on a server
    Files(FilesGroup),
    /// Save sandboxes on a server, and make others from what was saved
    Snapshot(SnapshotGroup),
    /// See one-shot runs on a server
    Runs(RunsGroup),
    /// See what was used on a server, and what it cost
    Usage(UsageCommand),
    /// Show where a server can put sandboxes, with prices and health
    Providers(ProvidersCommand),
    /// Ask a server where a sandbox would go, and why
    Route(RouteGroup),
    /// Measure how fast sandboxes are here, beside what one would otherwise use
    Bench(BenchCommand),
    /// Print completions for a shell
    Completions {
        /// The shell to print them for
        shell: Shell,
    },
    /// Write a manual page for each command
    Manual {
        /// Folder to write them to; it is made if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// `sandstorm run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: the program's own; 128 + n for signal n; 1 compile error; 124 time limit; \
                        137 memory or output limit, output that was cut, or cancelled; 2 bad usage; 125 sandstorm itself failed."
)]
pub(crate) struct RunCommand {
    /// Program to run; its name tells the language. `-` reads the code from standard input
    #[arg(value_name = "FILE", required_unless_present = "code")]
    pub(crate) file: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
    /// Language, where the file name does not tell
    #[arg(short, long, value_name = "NAME")]
    pub(crate) language: Option<String>,
    /// Code to run
    #[arg(short, long, conflicts_with = "file", requires = "language")]
    pub(crate) code: Option<String>,
    /// Package that the program needs, such as `numpy==2.1.0`; may be repeated
    #[arg(short, long = "require", value_name = "PACKAGE")]
    pub(crate) require: Vec<String>,

    /// Time by the clock, such as `2s` or `1m30s`
    #[arg(long, value_name = "TIME", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) timeout: Option<String>,
    /// Processor time of all processes together
    #[arg(long, value_name = "TIME", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) cpu_time: Option<String>,
    /// Processors, such as `0.5` or `2`
    #[arg(long, value_name = "N", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// Memory of all processes together, such as `256M`
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) memory: Option<String>,
    /// Processes and threads alive at once
    #[arg(long, value_name = "N", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) pids: Option<String>,
    /// Open files of each process
    #[arg(long, value_name = "N", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) open_files: Option<String>,
    /// Bytes that can be written to files
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) disk: Option<String>,
    /// Where that lies: in memory, or on this machine's disk
    #[arg(long, value_name = "PLACE", help_heading = "Limits")]
    pub(crate) space: Option<SpaceName>,
    /// Files and folders that can be made
    #[arg(long, value_name = "N", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) inodes: Option<String>,
    /// Bytes of output that are kept
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_negative_numbers = true)]
    pub(crate) output: Option<String>,
    /// Refuse to run when a wall or limit cannot be had on this machine, instead of saying so in the result
    #[arg(long, help_heading = "Limits")]
    pub(crate) strict: bool,

    /// Network: `none`, `open`, or hosts to allow, such as `example.com,*.example.org:8443`
    #[arg(long, value_name = "POLICY", help_heading = "Inputs and outputs")]
    pub(crate) network: Option<String>,
    /// Variable of the program's environment, `NAME=VALUE`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Inputs and outputs")]
    pub(crate) env: Vec<String>,
    /// File to put beside the program, `FILE` or `FILE:NAME-INSIDE`; may be repeated
    #[arg(long = "file", value_name = "FILE", help_heading = "Inputs and outputs")]
    pub(crate) files: Vec<PathBuf>,
    /// Folder to bring the program's files back to, without links that lead out of it and special files
    #[arg(long, value_name = "DIR", help_heading = "Inputs and outputs")]
    pub(crate) out: Option<PathBuf>,
    /// File to read standard input from
    #[arg(long, value_name = "FILE", help_heading = "Inputs and outputs")]
    pub(crate) stdin_file: Option<PathBuf>,
    /// Print the result as JSON instead of streaming the output
    #[arg(long, help_heading = "Inputs and outputs")]
    pub(crate) json: bool,
}

/// Where the writable space of a sandbox lies.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SpaceName {
    Memory,
    Disk,
}

impl From<SpaceName> for Space {
    fn from(name: SpaceName) -> Self {
        match name {
            SpaceName::Memory => Self::Memory,
            SpaceName::Disk => Self::Disk,
        }
    }
}

/// `sandstorm languages`.
#[derive(Debug, Args)]
pub(crate) struct LanguagesCommand {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sandstorm doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 sandboxes work here; 1 they do not, or a case of the matrix fails.")]
pub(crate) struct DoctorCommand {
    /// Attack the walls and limits of each engine with a small suite of programs, and say which held
    #[arg(long)]
    pub(crate) matrix: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `sandstorm config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a commented file with every default
    Init {
        /// Where to write it
        path: Option<PathBuf>,
        /// Replace a file that is there
        #[arg(long)]
        force: bool,
    },
    /// Check the configuration and say where it is wrong
    Check,
    /// Show every setting with its value and where that comes from
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
