//! What a person sees while it runs: one line that changes on a terminal, else a line for each part that is done.

use std::io::{IsTerminal, Write};

/// What happens now. Seen on a terminal only.
pub(super) fn tell(words: &str) {
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{words}");
        let _ = stderr.flush();
    }
}

/// What is behind us.
pub(super) fn done(words: &str) {
    let mut stderr = std::io::stderr().lock();
    let clear = if stderr.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(stderr, "{clear}bench: {words}");
}
