//! The life of a sandbox as a state machine.
//!
//! `creating → ready`, `ready → pausing → paused → resuming → ready`, from every living state
//! `→ terminating → terminated`, and `failed` from any state that is not an end. `running` is not a state:
//! it is how `ready` is shown while execs are in flight.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a sandbox is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Creating,
    Ready,
    Pausing,
    Paused,
    Resuming,
    Terminating,
    Terminated,
    Failed { reason: String },
}

/// One step of the machine. Stored and emitted before callers hear of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    Created,
    Pause,
    Paused,
    Resume,
    Resumed,
    Terminate,
    Terminated,
    Fail { reason: String },
}

/// A change that a caller may ask a provider for; ending a sandbox is `destroy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transition {
    Pause,
    /// Pauses what keeps its files only: every program in it ends.
    PauseFiles,
    Resume,
}

/// A step that the present state does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a sandbox that is {from} cannot {step}")]
pub struct Conflict {
    pub from: State,
    pub step: Step,
}

/// What people are shown: the state, and whether a ready sandbox is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Creating,
    Ready,
    Running,
    Pausing,
    Paused,
    Resuming,
    Terminating,
    Terminated,
    Failed,
}

impl Phase {
    /// Its name as people are shown it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Terminating => "terminating",
            Self::Terminated => "terminated",
            Self::Failed => "failed",
        }
    }
}

impl State {
    /// The state after `step`, or a conflict when the machine has no such arrow.
    pub fn after(&self, step: Step) -> Result<Self, Conflict> {
        match (self, step) {
            (Self::Creating, Step::Created) => Ok(Self::Ready),
            (Self::Ready, Step::Pause) => Ok(Self::Pausing),
            (Self::Pausing, Step::Paused) => Ok(Self::Paused),
            (Self::Paused, Step::Resume) => Ok(Self::Resuming),
            (Self::Resuming, Step::Resumed) => Ok(Self::Ready),
            (
                Self::Creating | Self::Ready | Self::Pausing | Self::Paused | Self::Resuming,
                Step::Terminate,
            ) => Ok(Self::Terminating),
            (Self::Terminating, Step::Terminated) => Ok(Self::Terminated),
            (from, Step::Fail { reason }) if !from.is_final() => Ok(Self::Failed { reason }),
            (from, step) => Err(Conflict { from: from.clone(), step }),
        }
    }

    /// Whether nothing can follow.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Terminated | Self::Failed { .. })
    }

    /// Whether execs and file operations can be asked for.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    pub fn phase(&self, execs_in_flight: usize) -> Phase {
        match self {
            Self::Creating => Phase::Creating,
            Self::Ready if execs_in_flight > 0 => Phase::Running,
            Self::Ready => Phase::Ready,
            Self::Pausing => Phase::Pausing,
            Self::Paused => Phase::Paused,
            Self::Resuming => Phase::Resuming,
            Self::Terminating => Phase::Terminating,
            Self::Terminated => Phase::Terminated,
            Self::Failed { .. } => Phase::Failed,
        }
    }
}

impl Transition {
    /// The step that starts the change.
    pub fn first_step(self) -> Step {
        match self {
            Self::Pause | Self::PauseFiles => Step::Pause,
            Self::Resume => Step::Resume,
        }
    }

    /// The step that completes it.
    pub fn last_step(self) -> Step {
        match self {
            Self::Pause | Self::PauseFiles => Step::Paused,
            Self::Resume => Step::Resumed,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Terminating => "terminating",
            Self::Terminated => "terminated",
            Self::Failed { .. } => "failed",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "become ready",
            Self::Pause => "start pausing",
            Self::Paused => "become paused",
            Self::Resume => "start resuming",
            Self::Resumed => "become ready again",
            Self::Terminate => "start terminating",
            Self::Terminated => "become terminated",
            Self::Fail { .. } => "fail",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> State {
        State::Failed { reason: "x".into() }
    }

    fn states() -> [State; 8] {
        use State::*;
        [Creating, Ready, Pausing, Paused, Resuming, Terminating, Terminated, failed()]
    }

    fn steps() -> [Step; 8] {
        use Step::*;
        [Created, Pause, Paused, Resume, Resumed, Terminate, Terminated, Fail { reason: "x".into() }]
    }

    /// Rows are states, columns steps, both in the order above; `.` is a conflict.
    const TABLE: [&str; 8] = [
        "ready . . . . terminating . failed",
        ". pausing . . . terminating . failed",
        ". . paused . . terminating . failed",
        ". . . resuming . terminating . failed",
        ". . . . ready terminating . failed",
        ". . . . . . terminated failed",
        ". . . . . . . .",
        ". . . . . . . .",
    ];

    #[test]
    fn every_arrow_and_no_other() {
        for (from, row) in states().into_iter().zip(TABLE) {
            for (step, wanted) in steps().into_iter().zip(row.split(' ')) {
                let shown = match from.after(step.clone()) {
                    Ok(next) => next.to_string(),
                    Err(conflict) => {
                        assert_eq!(conflict, Conflict { from: from.clone(), step: step.clone() });
                        ".".to_owned()
                    }
                };
                assert_eq!(shown, wanted, "{from} {step}");
            }
        }
    }

    #[test]
    fn running_is_only_a_way_to_show_ready() {
        assert_eq!(State::Ready.phase(0), Phase::Ready);
        assert_eq!(State::Ready.phase(2), Phase::Running);
        assert_eq!(State::Pausing.phase(2), Phase::Pausing);
    }

    #[test]
    fn conflicts_read_well() {
        let conflict = State::Paused.after(Step::Pause).unwrap_err();
        assert_eq!(conflict.to_string(), "a sandbox that is paused cannot start pausing");
    }

    #[test]
    fn json_keeps_the_reason() {
        assert_eq!(serde_json::to_string(&failed()).unwrap(), r#"{"state":"failed","reason":"x"}"#);
        assert_eq!(serde_json::from_str::<State>(r#"{"state":"ready"}"#).unwrap(), State::Ready);
    }
}
