//! `sandstorm doctor`.

use std::process::ExitCode;

use crate::arguments::{DoctorCommand, Shared};

pub(crate) fn show(_shared: &Shared, _command: DoctorCommand) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not yet")
}
