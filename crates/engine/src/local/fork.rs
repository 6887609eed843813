//! A living sandbox goes on in another one.
//!
//! An interpreter is carried by having the launcher make a guest in the new jail a copy of it: its memory and where it
//! stands. So it has the walls of its own jail from the start, and nothing of the old one but what it remembers.
//!
//! A jail that was made ahead has a guest already, and interpreters are copied while the files are on their way. Most take
//! to that. One that has loaded or stands in something among the files needs these to be there, and all need a fork of
//! the very zygote that they are forks of: whichever is refused for that is copied again under these conditions.

use std::sync::Arc;

use sandstorm_agent_client::files::carry;
use sandstorm_agent_client::lost;
use sandstorm_jail::launcher::RefusalKind;
use sandstorm_provider::{
    CreateOptions, Error, Expected, ForkOptions, Forked, NotCarried, OpContext, Result,
};
use sandstorm_types::{ErrorKind, ExecId, SandboxId, Unmet};
use tracing::Instrument;

use super::execs::Reserved;
use super::{LocalProvider, refused};
use crate::exec::{self, Followed};
use crate::launcher::LauncherError;
use crate::living::{Joinable, Living};

/// An interpreter to carry, and what it will be called.
struct Carried {
    source: Followed,
    guest: u32,
    from: ExecId,
    to: ExecId,
}

impl LocalProvider {
    /// Whether living sandboxes can be copied here: there are zygotes, and execs are written down.
    pub(super) fn can_fork(&self) -> bool {
        self.journals.is_some() && !self.maker.zygotes.is_empty()
    }

    /// Whether that is promised: a zygote that never forked here and fails again and again is none. Where it is promised,
    /// no context begins without a zygote: it waits, or is refused.
    pub(super) fn promises_forks(&self) -> bool {
        self.journals.is_some() && !self.maker.zygotes.promised().is_empty()
    }

    pub(super) async fn fork_living(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        options: ForkOptions,
    ) -> Result<Forked> {
        if !self.can_fork() {
            let unmet = Unmet::new("live_fork", "yes", "no", "this host has no zygotes to fork from");
            return Err(Error::unmet(vec![unmet]));
        }
        let source = self.living(id)?;
        source.check_ready()?;
        let _urgent = self.pool.as_ref().map(|pool| pool.urgent());
        source.agent.ready().await.map_err(lost)?;
        let ForkOptions { spec, create, execs, partial } = options;
        let new = create.id;
        let mut left = Vec::new();
        let mut carrying = Vec::new();
        for (from, to) in execs {
            match self.carriable(&source, from, to) {
                Ok(carried) => carrying.push(carried),
                Err(error) => leave(&mut left, from, error, partial)?,
            }
        }
        let files = carry::export(&source.agent)?;
        let create = CreateOptions { expects: self.expected_by(&source, &carrying), ..create };
        let making = tracing::debug_span!("make the jail");
        let made = self.make(cx.tenant(), &spec, create).instrument(making).await?;
        match self.fill(&source, &new, files, carrying, partial).await {
            Ok((carried, more)) => {
                left.extend(more);
                Ok(Forked { sandbox: made, carried, not_carried: left })
            }
            Err(error) => {
                let _ = self.remove(&new).await;
                Err(error)
            }
        }
    }

    /// Copies files and interpreters into a sandbox that was made for them.
    async fn fill(
        &self,
        source: &Arc<Living>,
        new: &SandboxId,
        files: carry::Files,
        carrying: Vec<Carried>,
        partial: bool,
    ) -> Result<(Vec<ExecId>, Vec<NotCarried>)> {
        let living = self.living(new)?;
        living.agent.ready().await.map_err(lost)?;
        let importing = carry::import(files, &living.agent).instrument(tracing::debug_span!("copy files"));
        let copying = carrying.iter().map(|carried| {
            self.carry(source, carried, &living, living.take_guest().map(|guest| guest.number))
        });
        let (files, copied) = tokio::join!(importing, futures_util::future::join_all(copying));
        let mut left: Vec<NotCarried> = files?.iter().map(lacking).collect();
        let mut done = Vec::new();
        for (carried, copied) in carrying.iter().zip(copied) {
            let copied = match copied {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    tracing::debug!(exec = %carried.from, %error, "an interpreter is copied again");
                    self.carry(source, carried, &living, None).await
                }
                other => other,
            };
            match copied {
                Ok(exec) => done.push(exec),
                Err(error) => leave(&mut left, carried.from, error, partial)?,
            }
        }
        Ok((done, left))
    }

    /// What a jail has to have ready for interpreters like these: with it, one that was made ahead has a guest.
    fn expected_by(&self, source: &Living, carrying: &[Carried]) -> Option<Expected> {
        let joinable = source.joinable().filter(|_| !carrying.is_empty())?;
        self.maker.zygotes.expectation(&joinable.zygote)
    }

    /// Carries an interpreter into the guest that waits for it, or into one that is put there now.
    async fn carry(
        &self,
        source: &Arc<Living>,
        carried: &Carried,
        living: &Arc<Living>,
        waiting: Option<u32>,
    ) -> Result<ExecId> {
        let guest = match waiting {
            Some(guest) => guest,
            None => {
                let joining = tracing::debug_span!("put a guest in");
                guest_like(source, carried, living).instrument(joining).await?
            }
        };
        let copying = tracing::debug_span!("copy an interpreter");
        let copied = self.transplant(source, carried, living, guest).instrument(copying).await;
        copied.inspect_err(|_| living.agent.dismiss(guest))?;
        let following = tracing::debug_span!("follow the copy");
        self.take_over(living, guest, carried).instrument(following).await
    }

    /// What an exec has to be to be carried.
    fn carriable(&self, source: &Arc<Living>, from: ExecId, to: ExecId) -> Result<Carried> {
        let conflict = |why: &'static str| Error::new(ErrorKind::Conflict, why);
        let followed = self.execs.get(&from)?;
        if followed.sandbox != source.id {
            return Err(Error::new(ErrorKind::NotFound, "there is no such exec").with("exec", from));
        }
        if followed.log.has_ended() {
            return Err(conflict("it has ended"));
        }
        let guest =
            followed.guest.ok_or_else(|| conflict("it does not run in an interpreter of a zygote"))?;
        Ok(Carried { source: followed, guest, from, to })
    }

    /// Makes the guest a copy.
    async fn transplant(
        &self,
        source: &Arc<Living>,
        carried: &Carried,
        living: &Living,
        guest: u32,
    ) -> Result<()> {
        let _alone = source.copying.lock().await;
        source.check_ready()?;
        let (from, to) = ((source.name(), carried.guest), (living.name(), guest));
        let report = self.launcher.transplant(from, to).await.map_err(not_copied)?;
        tracing::debug!(exec = %carried.from, copy = %carried.to, ?report, "an interpreter was copied");
        metrics::histogram!("sandstorm_transplant_seconds").record(report.microseconds as f64 / 1e6);
        metrics::histogram!("sandstorm_transplant_bytes").record(report.bytes as f64);
        Ok(())
    }

    /// Follows a copy as a program of its own.
    async fn take_over(&self, living: &Arc<Living>, guest: u32, carried: &Carried) -> Result<ExecId> {
        self.execs.reserve(carried.to)?;
        let reserved = Reserved { execs: &self.execs, id: Some(carried.to) };
        reserved.fill(exec::start_copy(living, guest, carried.to, &carried.source, &self.tasks).await?);
        Ok(carried.to)
    }
}

/// Puts a guest into the new jail that is a sibling of the one to be copied.
async fn guest_like(source: &Living, carried: &Carried, living: &Living) -> Result<u32> {
    let joinable = living.joinable().or(source.joinable());
    let Joinable { zygote, owner, .. } = joinable
        .ok_or_else(|| Error::new(ErrorKind::Conflict, "the sandbox takes no interpreters of a zygote"))?;
    let like = Some((source.name(), carried.guest));
    let guest = living.launcher.join(&living.name(), zygote, owner, like).await.map_err(no_sibling)?.number;
    living.agent.guest_ready(guest).await.map_err(lost)?;
    // From here on nobody else takes it.
    living.agent.take_guest(guest);
    Ok(guest)
}

/// Without a zygote to fork from once more, it cannot be copied; want of room is another matter.
fn no_sibling(error: LauncherError) -> Error {
    match error {
        LauncherError::Refused(refusal) if refusal.kind != RefusalKind::Capacity => {
            Error::new(ErrorKind::Conflict, refusal.message)
        }
        other => refused(other),
    }
}

/// What the launcher says cannot be copied is a matter of what the interpreter has; the rest is ours.
fn not_copied(error: LauncherError) -> Error {
    match error {
        LauncherError::Refused(refusal)
            if matches!(refusal.kind, RefusalKind::Forbidden | RefusalKind::Gone) =>
        {
            Error::new(ErrorKind::Conflict, refusal.message)
        }
        other => refused(other),
    }
}

/// Names what is left out, where that is allowed; else it is the refusal.
fn leave(left: &mut Vec<NotCarried>, exec: ExecId, error: Error, partial: bool) -> Result<()> {
    let of_the_program = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound);
    if !partial || !of_the_program {
        let refusal =
            Error::new(error.kind(), format!("an interpreter cannot be carried: {}", error.message()));
        return Err(refusal.with("exec", exec));
    }
    left.push(NotCarried { what: format!("exec {exec}"), why: error.message().to_owned() });
    Ok(())
}

pub(super) fn lacking(error: &Error) -> NotCarried {
    NotCarried { what: "file".to_owned(), why: error.message().to_owned() }
}
