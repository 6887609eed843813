//! States as two columns: the name, and why it failed.

use sandstorm_types::State;

use crate::{Result, StoreError};

/// The state as both databases can hold it: a reason may quote what a program wrote, and PostgreSQL holds no NUL.
pub(super) fn storable(state: State) -> State {
    match state {
        State::Failed { reason } => State::Failed { reason: reason.replace('\0', "\u{fffd}") },
        state => state,
    }
}

pub(super) fn reason(state: &State) -> Option<String> {
    match state {
        State::Failed { reason } => Some(reason.clone()),
        _ => None,
    }
}

pub(super) fn parse(name: &str, reason: Option<String>) -> Result<State> {
    Ok(match name {
        "creating" => State::Creating,
        "ready" => State::Ready,
        "pausing" => State::Pausing,
        "paused" => State::Paused,
        "resuming" => State::Resuming,
        "terminating" => State::Terminating,
        "terminated" => State::Terminated,
        "failed" => State::Failed { reason: reason.unwrap_or_default() },
        _ => return Err(StoreError::corrupt("a sandbox is in an unknown state")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_comes_back() {
        for state in [
            State::Creating,
            State::Ready,
            State::Pausing,
            State::Paused,
            State::Resuming,
            State::Terminating,
            State::Terminated,
            State::Failed { reason: "it broke".into() },
        ] {
            assert_eq!(parse(&state.to_string(), reason(&state)).unwrap(), state);
        }
        assert!(parse("flying", None).is_err());
    }
}
