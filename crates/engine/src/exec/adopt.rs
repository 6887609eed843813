//! Programs of an earlier host: found by their journals and by what the agent held.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sandstorm_agent::protocol::Held;
use sandstorm_agent_client::program::check_walls;
use sandstorm_agent_client::{Feeding, TaskHandle, of_found};
use sandstorm_provider::{
    EndCause, ExecEnd, ExecEvent, ExecLog, ExecStatus, Journal, Restored, Tasks, Usage,
};
use sandstorm_types::{ExecId, LimitSet, PerStream};

use super::{FOLLOWING, Followed, tag_of};
use crate::journal::ExecJournal;
use crate::living::Living;

/// Execs of one sandbox that a directory may hold.
const MOST: usize = 16 * 1024;

/// The journals of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<(ExecId, ExecJournal)>);

impl Found {
    /// Reads them all; what is no journal is removed. Blocking.
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e),
        };
        let mut found = Vec::new();
        for entry in entries.take(MOST) {
            let path = entry?.path();
            let id =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| ExecId::from_bare(name).ok());
            match (id, ExecJournal::open(&path)) {
                (Some(id), Ok(journal)) => found.push((id, journal)),
                (_, Err(error)) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                _ => drop(fs::remove_file(&path)),
            }
        }
        Ok(Self(found))
    }

    /// How many may be alive.
    pub(crate) fn alive(&self) -> usize {
        let over = |journal: &ExecJournal| journal.restored().is_some_and(|restored| restored.ended);
        self.0.iter().filter(|(_, journal)| !over(journal)).count()
    }
}

/// Programs that may live, until the agent says which of them do.
#[derive(Debug)]
pub(crate) struct Waiting(Vec<(ExecId, Program)>);

#[derive(Debug)]
struct Program {
    journal: ExecJournal,
    /// What is known of it; `None`: whether it ever started only the agent knows.
    known: Option<(Restored, Followed, Feeding)>,
}

impl Found {
    /// What can be listened to already, and what has to wait for the agent.
    pub(crate) fn sort(self, living: &Arc<Living>) -> (Vec<(ExecId, Followed)>, Waiting) {
        let (mut known, mut waiting) = (Vec::new(), Vec::new());
        for (id, journal) in self.0 {
            let about = journal.about();
            let Some(restored) = journal.restored() else {
                waiting.push((id, Program { journal, known: None }));
                continue;
            };
            let (input, channel, feeding) = of_found(about.input, about.channel);
            let log = ExecLog::restored(about.keep(), Box::new(journal.clone()), restored);
            let followed = Followed::new(
                living,
                (about.began, about.guest),
                log,
                Some(journal.clone()),
                (input, channel),
            );
            known.push((id, followed.clone()));
            if restored.ended || !about.lasting {
                followed.over();
            } else {
                waiting.push((id, Program { journal, known: Some((restored, followed, feeding)) }));
            }
        }
        (known, Waiting(waiting))
    }
}

impl Waiting {
    /// Follows the programs that the agent held; the others have ended. What comes back nobody knew before.
    pub(crate) fn meet(
        self,
        living: &Arc<Living>,
        mut held: Vec<(Held, TaskHandle)>,
        tasks: &Tasks,
    ) -> Vec<(ExecId, Followed)> {
        let mut new = Vec::new();
        for (id, program) in self.0 {
            let place = held.iter().position(|(held, _)| held.tag == tag_of(id));
            match (place.map(|place| held.swap_remove(place)), program.known) {
                (Some((held, handle)), Some((restored, followed, feeding))) => {
                    follow(&followed, &restored, &held, handle, feeding, tasks);
                }
                (None, Some((_, followed, _))) => followed.over(),
                (Some((held, handle)), None) => match first(living, program.journal) {
                    Ok((restored, followed, feeding)) => {
                        follow(&followed, &restored, &held, handle, feeding, tasks);
                        new.push((id, followed));
                    }
                    Err(_) => handle.forget(true),
                },
                // It was about to be started and never was.
                (None, None) => program.journal.remove(),
            }
        }
        // Nobody knows these, so nobody could ever end them; or their end was noted, and their host died before it could
        // say so.
        for (_, handle) in held {
            handle.forget(true);
        }
        new
    }
}

/// A program that started and whose host died before it could note that.
fn first(living: &Arc<Living>, journal: ExecJournal) -> io::Result<(Restored, Followed, Feeding)> {
    let about = journal.about();
    journal.append(0, &ExecEvent::Started)?;
    let restored = journal.restored().unwrap_or_default();
    let (input, channel, feeding) = of_found(about.input, about.channel);
    let log = ExecLog::restored(about.keep(), Box::new(journal.clone()), restored);
    Ok((
        restored,
        Followed::new(living, (about.began, about.guest), log, Some(journal), (input, channel)),
        feeding,
    ))
}

/// Goes on where the host before stopped. The agent is not believed: what it has not got any more and the journal has not
/// got either is a gap, with which nobody can go on.
fn follow(
    followed: &Followed,
    restored: &Restored,
    held: &Held,
    handle: TaskHandle,
    feeding: Feeding,
    tasks: &Tasks,
) {
    let have = [restored.written.stdout, restored.written.stderr, restored.channel];
    let gap = held.first.iter().zip(have).any(|(first, have)| *first > have);
    let walls = held.walls.as_ref().map_or(Ok(()), check_walls);
    if gap || walls.is_err() {
        tracing::error!(sandbox = %followed.sandbox, gap, "an exec cannot be taken over");
        followed.log.fail("the program could not be taken over from the host before");
        handle.forget(true);
        return;
    }
    let known = std::array::from_fn(|at| have[at].saturating_sub(held.first[at]));
    let left = followed.journal.as_ref().and_then(ExecJournal::time_left).unwrap_or_default();
    feeding.feed(&handle.input, tasks);
    tasks.start(FOLLOWING, followed.follow(handle, known, left, followed.living.egress.watch()));
}

impl Followed {
    /// It lives no more. One whose end nobody noted died with its host.
    fn over(&self) {
        let touched = self.journal.as_ref().and_then(ExecJournal::touched);
        let died = self.log.end(ExecEnd {
            status: ExecStatus::Signal(9),
            cause: EndCause::Caller,
            limits_hit: LimitSet::EMPTY,
            denied: Vec::new(),
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage: Usage::default(),
        });
        if let Err(error) = died {
            self.log.fail(format!("the end of the program could not be kept: {error}"));
        }
        let age = touched.and_then(|at| at.elapsed().ok()).unwrap_or_default();
        self.ended_at.store(super::now().saturating_sub(age.as_secs()).max(1), Ordering::Relaxed);
    }
}
