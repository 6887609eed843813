//! What the checks found.

#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Broken rules; one is enough to fail.
    pub(crate) errors: Vec<String>,
    /// Worth a look, never a failure.
    pub(crate) warnings: Vec<String>,
    /// Counts that a reader wants to see each time.
    pub(crate) notes: Vec<String>,
}

impl Report {
    pub(crate) fn error(&mut self, line: impl Into<String>) {
        self.errors.push(line.into());
    }

    pub(crate) fn warning(&mut self, line: impl Into<String>) {
        self.warnings.push(line.into());
    }

    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }
}
