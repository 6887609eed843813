//! The languages of the bench, each with the smallest program that says something.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    Node,
    Bash,
}

/// What every program here prints.
pub(super) const PRINTED: &str = "1\n";
/// The same, as a result has it.
pub(super) const RESULT: &str = r#""stdout":"1\n""#;

impl Language {
    pub(super) const ALL: [Self; 3] = [Self::Python, Self::Node, Self::Bash];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Bash => "bash",
        }
    }

    /// By the name that requests have for it.
    pub(super) fn api_name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "javascript",
            Self::Bash => "bash",
        }
    }

    /// By its full path: a shim on the PATH starts many times slower.
    fn interpreter(self) -> [&'static str; 2] {
        match self {
            Self::Python => ["/usr/bin/python3", "-c"],
            Self::Node => ["/usr/bin/node", "-e"],
            Self::Bash => ["/usr/bin/bash", "-c"],
        }
    }

    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Python => "print(1)",
            Self::Node => "console.log(1)",
            Self::Bash => "echo 1",
        }
    }

    /// Prints, and then waits for the end of its input.
    fn waiting_code(self) -> &'static str {
        match self {
            Self::Python => "print(1, flush=True); import sys; sys.stdin.read()",
            Self::Node => "console.log(1); process.stdin.resume()",
            Self::Bash => "echo 1; read line",
        }
    }

    pub(super) fn words(self) -> [&'static str; 3] {
        let [program, flag] = self.interpreter();
        [program, flag, self.code()]
    }

    pub(super) fn waiting_words(self) -> [&'static str; 3] {
        let [program, flag] = self.interpreter();
        [program, flag, self.waiting_code()]
    }
}
