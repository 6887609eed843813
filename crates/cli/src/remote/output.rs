//! Answers on standard output: a table or a line for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::table::Table;
use crate::complaint::{paints, safe};

#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) json: bool,
}

impl Output {
    /// One JSON value, or what `people` writes.
    pub(super) fn show(self, value: &impl Serialize, people: impl FnOnce() -> String) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut stdout, value)?;
            writeln!(stdout)?;
        } else {
            write!(stdout, "{}", people())?;
        }
        stdout.flush()
    }

    /// A list, in JSON under its name as the other lists of this command line are.
    pub(super) fn list<T: Serialize>(
        self,
        name: &str,
        items: &[T],
        table: impl FnOnce() -> Table,
    ) -> io::Result<()> {
        let value = serde_json::json!({ name: items });
        self.show(&value, || table().text(paints(&io::stdout())))
    }

    /// A line for people, an object for programs.
    pub(super) fn line(self, value: &impl Serialize, line: &str) -> io::Result<()> {
        self.show(value, || format!("{}\n", safe(line)))
    }
}
