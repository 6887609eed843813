//! Aligned columns for people.

use crate::complaint::safe;

/// Rows below a head. The last column may be of any width.
#[derive(Debug)]
pub(super) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One field of a row, with the colour that it has on a terminal.
#[derive(Debug)]
pub(super) struct Cell {
    text: String,
    colour: &'static str,
}

impl Cell {
    pub(super) fn painted(text: impl Into<String>, colour: &'static str) -> Self {
        Self { text: safe(&text.into()).replace(['\n', '\t'], " "), colour }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::painted(text, "")
    }
}

impl Table {
    pub(super) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.head.len(), "each column has a head");
        self.rows.push(cells.into());
    }

    /// The whole table; empty without rows, so that counting its lines counts something.
    pub(super) fn text(&self, colours: bool) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.chars().count());
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        let head: Vec<Cell> = self.head.iter().map(|name| Cell::painted(*name, "1")).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let padding = " ".repeat(width - cell.text.chars().count());
                match cell.colour {
                    colour if colours && !colour.is_empty() => {
                        line.push_str(&format!("\u{1b}[{colour}m{}\u{1b}[0m{padding}  ", cell.text));
                    }
                    _ => line.push_str(&format!("{}{padding}  ", cell.text)),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["ID", "STATE", "TITLE"]);
        table.row(["sbx_a".into(), Cell::painted("ready", "32"), "".into()]);
        table.row(["sbx_longer".into(), "ü".into(), "evil\u{1b}[2J\nline".into()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let expected =
            "ID          STATE  TITLE\nsbx_a       ready\nsbx_longer  ü      evil\u{fffd}[2J line\n";
        assert_eq!(table().text(false), expected);
        assert_eq!(Table::new(&["ID"]).text(false), "");
    }

    #[test]
    fn colours_are_the_only_escapes_and_do_not_move_columns() {
        let painted = table().text(true);
        assert!(painted.contains("sbx_a       \u{1b}[32mready\u{1b}[0m"), "{painted:?}");
        assert!(!painted.contains("\u{1b}[2J"));
    }
}
