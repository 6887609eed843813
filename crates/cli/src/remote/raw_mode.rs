//! The terminal that we sit at, handed over to a program far away, and taken back whatever happens.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, Once};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandstorm_client::TtySize;

/// Rows or columns that the server takes at most.
const LARGEST: u16 = 1000;

/// What the terminal was like, while it is not.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Every key goes to the program, Ctrl-C included, and its output is not touched. Dropping it restores the terminal.
#[derive(Debug)]
pub(super) struct RawMode(());

impl RawMode {
    /// `None` when our input is no terminal: then there is nothing to hand over.
    pub(super) fn enter() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(before);
        restore_on_panic();
        tcsetattr(&stdin, OptionalActions::Drain, &raw)?;
        Ok(Some(Self(())))
    }

    /// For a program that was cut off and could not tidy up: leaves the alternate screen, shows the cursor, ends
    /// mouse reports, bracketed paste and colours.
    pub(super) fn tidy() {
        let mut stdout = io::stdout();
        if stdout.is_terminal() {
            let _ = stdout
                .write_all(b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?2004l\x1b[0m\r\n");
            let _ = stdout.flush();
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &before);
    }
}

/// A panic of the shipped binary ends it at once and drops nothing.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
    });
}

/// The size of our terminal, or what programs expect where there is none.
pub(super) fn size() -> TtySize {
    let known = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stdin())).ok();
    match known {
        Some(size) if size.ws_row > 0 && size.ws_col > 0 => {
            TtySize { rows: size.ws_row.min(LARGEST), cols: size.ws_col.min(LARGEST) }
        }
        _ => TtySize { rows: 24, cols: 80 },
    }
}
