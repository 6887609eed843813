//! A small suite of programs that attack walls and limits, run in every engine of this machine.
//!
//! It shows on the user's own machine what the tests of this project show on others'. Each case is a shell script in a
//! fresh sandbox; what the sandbox cannot influence (kernel counters, how the program ended) decides about limits.

mod cases;
mod judge;
mod run;

use std::io::{self, Write};

use serde::Serialize;

use super::table::paint;
use crate::complaint::safe;
use crate::local::Local;

/// What `--matrix --json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Matrix {
    engines: Vec<Engine>,
}

#[derive(Debug, Serialize)]
struct Engine {
    name: &'static str,
    cases: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    suite: &'static str,
    outcome: Outcome,
    /// Why it was refused or failed; empty when it passed.
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// The wall or limit held.
    Pass,
    /// The engine says itself that it cannot give this here, or the case cannot be tried here.
    Refused,
    /// The wall or limit did not hold.
    Fail,
}

impl Matrix {
    pub(crate) fn run(engine: &Local) -> anyhow::Result<Self> {
        Ok(Self { engines: vec![Engine { name: "jail", cases: run::all(engine)? }] })
    }

    pub(crate) fn holds(&self) -> bool {
        self.rows().all(|row| row.outcome != Outcome::Fail)
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.engines.iter().flat_map(|engine| &engine.cases)
    }

    pub(crate) fn write(&self, out: &mut impl Write, colours: bool) -> io::Result<()> {
        let width = self.rows().map(|row| row.name.len()).max().unwrap_or(0);
        for engine in &self.engines {
            writeln!(out, "{}", paint(engine.name, "1", colours))?;
            for row in &engine.cases {
                let (word, colour) = match row.outcome {
                    Outcome::Pass => ("pass", "32"),
                    Outcome::Refused => ("refused", "33"),
                    Outcome::Fail => ("fail", "1;31"),
                };
                let mark = paint(&format!("{word:<7}"), colour, colours);
                let line = format!(
                    "{:<6}  {:<width$}  {}",
                    row.suite,
                    row.name,
                    safe(&row.reason).replace('\n', "; ")
                );
                writeln!(out, "  {mark}  {}", line.trim_end())?;
            }
        }
        Ok(())
    }
}
