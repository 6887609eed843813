//! What clients say about terminals and signals, as the provider takes it.

use sandstorm_e2b_wire::process::Pty;
use sandstorm_e2b_wire::signal::Signal;
use sandstorm_provider::{ExecSignal, TtySize};

use crate::rpc::{RpcError, RpcResult};

/// Largest terminal; more is no terminal.
const LARGEST: u32 = 1000;

/// The size of a terminal, where nothing is said the usual one.
pub(super) fn size(pty: Pty) -> RpcResult<TtySize> {
    let number = |given: u32, usual: u16| match given {
        0 => Ok(usual),
        1..=LARGEST => Ok(u16::try_from(given).unwrap_or(usual)),
        _ => Err(RpcError::invalid("a terminal has at most 1000 columns and rows")),
    };
    Ok(TtySize { rows: number(pty.size.rows, 24)?, cols: number(pty.size.cols, 80)? })
}

pub(super) fn signal(signal: Signal) -> ExecSignal {
    match signal {
        Signal::Kill => ExecSignal::Kill,
        Signal::Terminate => ExecSignal::Terminate,
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_e2b_wire::process::Size;

    use super::*;

    #[test]
    fn terminals_have_a_size() {
        let pty = |cols, rows| size(Pty { size: Size { cols, rows } });
        assert_eq!(pty(80, 24).unwrap(), TtySize { rows: 24, cols: 80 });
        assert_eq!(pty(0, 0).unwrap(), TtySize { rows: 24, cols: 80 });
        assert!(pty(1001, 1).is_err() && pty(1, u32::MAX).is_err());
    }
}
