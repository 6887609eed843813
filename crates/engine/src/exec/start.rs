//! Starting a program: in a guest interpreter where one can run it, else in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_agent::protocol::{Guest, INTERPRETER, Program, Tag, Task};
use sandstorm_agent_client::program::{self, Named, WORKSPACE, check_walls, start_failure};
use sandstorm_agent_client::{AgentError, Feeding, TaskEvent, TaskHandle, lost, of_request};
use sandstorm_provider::{
    ChannelInput, Error, Exec, ExecInput, ExecLog, ExecRequest, Keep, Result, Stdin, Tasks,
};
use sandstorm_types::{ByteSize, ErrorKind, ExecId};

use super::attended::Attended;
use super::before::Before;
use super::guest::{self, Way};
use super::{FOLLOWING, Followed, Tally, tag_of};
use crate::guest::{Given, Heard, Job, WaitingGuest};
use crate::journal::{About, ExecJournal};
use crate::living::{Living, limit_of};

/// How long a sandbox may outlive its last program before what that left is ended.
const SOON: Duration = Duration::from_millis(10);

/// When to come back to a server whose disk is full.
const FULL: Duration = Duration::from_secs(5);

/// Starts a program. Dropping the future before it resolves ends what was started.
pub(crate) async fn start(
    living: &Arc<Living>,
    mut request: ExecRequest,
    tasks: &Tasks,
) -> Result<(Exec, Followed)> {
    let prepare = async {
        living.check_ready()?;
        living.agent.ready().await.map_err(lost)?;
        program::lay_out_large(&living.agent, &mut request).await?;
        let program = program::program(&living.spec, &mut request);
        let guest = guest::for_program(living, &program, tasks).await?;
        Ok((program, guest))
    };
    let (program, guest) = prepare.await.map_err(Error::with_not_started)?;
    let plan = Plan::of(living, &request);
    let (input, channel, mut feeding) = of_request(request.stdin, request.channel);
    let before = Before::ask(living);
    let network = living.egress.watch();
    let begun = plan.begin(living, program, guest, before.known(), &mut feeding).await?;
    if living.agent.has_untold() {
        end_remains_soon(living, tasks);
    }
    let began = before.settle(living);
    tracing::debug!(sandbox = %living.id, exec = %plan.id, way = begun.way.name(), "exec began");
    metrics::counter!("sandstorm_guests_total", "way" => begun.way.name()).increment(1);
    let followed = plan.followed(living, &begun, began, (input.clone(), channel.clone()))?;
    // A foreground program ends when nobody listens any more.
    let guard = (!plan.background).then(|| Box::new(followed.kill.clone().drop_guard()) as Box<_>);
    let events = followed.log.paced_events(guard);
    let handle = begun.starting.succeed()?;
    feeding.feed(&handle.input, tasks);
    let following = followed.follow(handle, [0; 3], plan.timeout, network);
    let events = match plan.attended {
        true => Attended { events, following: Some(Box::pin(following)), tasks: tasks.clone() }.boxed(),
        false => {
            tasks.start(FOLLOWING, following);
            events
        }
    };
    Ok((Exec { id: plan.id, first: 0, events, input, channel }, followed))
}

/// Takes over a guest that already goes on as a copy of the one that runs `source`, as a program of its own. It is kept as
/// the source is, has what is left of the source's time, and reads the end of its input unless input comes as it goes.
pub(crate) async fn start_copy(
    living: &Arc<Living>,
    guest: u32,
    id: ExecId,
    source: &Followed,
    tasks: &Tasks,
) -> Result<Followed> {
    let unkept = || Error::new(ErrorKind::Conflict, "only a program that is written down can be copied");
    let journal = source.journal.as_ref().ok_or_else(unkept)?;
    let plan = Plan::like(id, journal);
    let network = living.egress.watch();
    let stdin = if plan.streams_input { Stdin::Stream } else { Stdin::Empty };
    let (input, channel, mut feeding) = of_request(stdin, plan.channel);
    let program =
        Program { side_channel: plan.channel, guest: Some(Guest::Transplanted(guest)), ..Program::default() };
    let starting = match plan
        .attempt(living, program, Some(Given::ByTheAgent(guest)), Tally::default(), &mut feeding)
        .await
    {
        Ok(starting) => starting,
        Err(Missed::Guest) => return Err(Error::new(ErrorKind::Provider, "the copied interpreter is gone")),
        Err(Missed::Failed(error)) => return Err(error),
    };
    let begun = Begun { starting, way: Way::Joined, guest: Some(guest) };
    let followed = plan.followed(living, &begun, Tally::default(), (input, channel))?;
    let handle = begun.starting.succeed()?;
    feeding.feed(&handle.input, tasks);
    tasks.start(FOLLOWING, followed.follow(handle, [0; 3], plan.timeout, network));
    Ok(followed)
}

/// What of a request decides how its program is kept.
struct Plan {
    id: ExecId,
    keep: Keep,
    limit: ByteSize,
    timeout: Duration,
    lasting: bool,
    replay: bool,
    background: bool,
    streamed: bool,
    attended: bool,
    streams_input: bool,
    channel: bool,
}

/// A program that began.
struct Begun {
    starting: Starting,
    way: Way,
    guest: Option<u32>,
}

impl Plan {
    fn of(living: &Living, request: &ExecRequest) -> Self {
        let limit = request.output.unwrap_or(living.spec.limits.output);
        Self {
            id: request.id,
            keep: Keep::of(request, limit),
            limit,
            timeout: request.timeout.unwrap_or(living.spec.limits.wall),
            lasting: request.lasting,
            replay: request.replay,
            background: request.background,
            streamed: request.is_streamed(),
            attended: request.attended && !request.background,
            streams_input: request.stdin == Stdin::Stream,
            channel: request.channel,
        }
    }

    /// As that of a program that is written down there.
    fn like(id: ExecId, journal: &ExecJournal) -> Self {
        let about = journal.about();
        Self {
            id,
            keep: about.keep(),
            limit: ByteSize::bytes(about.limit.unwrap_or_default()),
            timeout: journal.time_left().unwrap_or_default(),
            lasting: about.lasting,
            replay: about.limit.is_some(),
            background: true,
            streamed: false,
            attended: false,
            streams_input: about.input,
            channel: about.channel,
        }
    }

    /// A program that began, with its log.
    fn followed(
        &self,
        living: &Arc<Living>,
        begun: &Begun,
        began: Tally,
        ends: (ExecInput, Option<ChannelInput>),
    ) -> Result<Followed> {
        let journal = begun.starting.journal.clone();
        let log = match &journal {
            Some(journal) => ExecLog::journaled(self.keep, Box::new(journal.clone())).map_err(unwritten)?,
            None => ExecLog::new(self.keep),
        };
        if self.streamed {
            log.pass_on_beyond();
        }
        Ok(Followed::new(living, (began, begun.guest), log, journal, ends))
    }

    /// Begins in the guest, if there is one. One that is gone by now was given nothing: then as without one.
    async fn begin(
        &self,
        living: &Arc<Living>,
        program: Program,
        guest: Option<(WaitingGuest, Way)>,
        known: Tally,
        feeding: &mut Feeding,
    ) -> Result<Begun> {
        if let Some((guest, way)) = guest {
            let number = guest.number;
            // Whoever takes a sandbox over has to find what runs there, so there only the agent starts anything. What was counted
            // before a program has to be known before it runs, so only the first one begins unannounced.
            let given = match living.journals.is_none() && living.agent.is_untouched() {
                true => guest.prepare(&program, living.own_places && program.cwd == WORKSPACE),
                false => Given::ByTheAgent(number),
            };
            let guest = Some(given.guest());
            let told = match given {
                // Its guest knows the rest.
                Given::FromHere(_) => Program { guest, last: program.last, ..Program::default() },
                Given::ByTheAgent(_) => Program { guest, ..program.clone() },
            };
            match self.attempt(living, told, Some(given), known, feeding).await {
                Ok(starting) => return Ok(Begun { starting, way, guest: Some(number) }),
                Err(Missed::Guest) => {
                    tracing::warn!(sandbox = %living.id, exec = %self.id, "a guest interpreter was lost");
                    if guest::is_to_be_forkable(living, &program) {
                        let why = "it ended before it had its program";
                        return Err(guest::not_forkable(living, &why).with_not_started());
                    }
                }
                Err(Missed::Failed(error)) => return Err(error),
            }
        }
        // They would count as its processes.
        living.dismiss_guests();
        match self.attempt(living, program, None, known, feeding).await {
            Ok(starting) => Ok(Begun { starting, way: Way::Cold, guest: None }),
            Err(Missed::Guest) => Err(lost(AgentError::Protocol("a guest that nobody asked for"))),
            Err(Missed::Failed(error)) => Err(error),
        }
    }

    async fn attempt(
        &self,
        living: &Arc<Living>,
        program: Program,
        guest: Option<Given>,
        known: Tally,
        feeding: &mut Feeding,
    ) -> Result<Starting, Missed> {
        let number = guest.as_ref().map(Given::number);
        let mut starting = Starting { handle: None, journal: self.journal(living, known, number)? };
        // Without a journal the next host would not know it.
        let tag: Option<Tag> = (self.lasting && starting.journal.is_some()).then(|| tag_of(self.id));
        let task = Task::Program(program);
        let handed = matches!(guest, Some(Given::FromHere(_)));
        let began = match guest {
            Some(Given::FromHere(job)) => Some(from_here(living, job, &task, feeding).await?),
            _ => None,
        };
        let handle = match began {
            Some(Began::Over(handle)) => {
                starting.handle = Some(handle);
                feeding.started();
                return Ok(starting);
            }
            Some(Began::GoesOn) => match feeding.start(&living.agent, task, tag) {
                // It took its sandbox down: its end will say how.
                Err(AgentError::Gone) => living.agent.ended_task(Vec::new()),
                started => started.map_err(lost)?,
            },
            // What could not be sent was not begun.
            None => {
                feeding.start(&living.agent, task, tag).map_err(|error| lost(error).with_not_started())?
            }
        };
        match wait_for_start(living, starting.handle.insert(handle)).await {
            // The program may run, and have said this itself: it must not be started again.
            Err(Missed::Guest) if handed => {
                return Err(lost(AgentError::Protocol("a guest without its program")).into());
            }
            Err(Missed::Failed(error)) if handed => return Err(of_handed(error).into()),
            waited => waited?,
        }
        feeding.started();
        Ok(starting)
    }

    /// What nobody can take over needs no journal: a log that flows keeps nothing anyway.
    fn journal(&self, living: &Living, began: Tally, guest: Option<u32>) -> Result<Option<ExecJournal>> {
        let flows = matches!(self.keep, Keep::UntilTaken | Keep::UpToUntilTaken(_));
        let Some(dir) = living.journals.as_ref().filter(|_| !flows) else {
            return Ok(None);
        };
        let about = About {
            limit: self.replay.then(|| self.limit.as_u64()),
            lasting: self.lasting,
            input: self.streams_input,
            channel: self.channel,
            began,
            guest,
        };
        let journal = ExecJournal::create(dir.join(self.id.bare()), about).map_err(unwritten)?;
        journal.set_clock(self.timeout, true).map_err(unwritten)?;
        Ok(Some(journal))
    }
}

/// A program that its guest has from this process.
enum Began {
    Over(TaskHandle),
    /// Its agent has to follow it.
    GoesOn,
}

/// Gives a guest its program, and listens for a moment unless there is something for it to read.
async fn from_here(living: &Arc<Living>, job: Job, task: &Task, feeding: &Feeding) -> Result<Began, Missed> {
    check_walls(job.walls())?;
    let number = job.number;
    let near = job.send().ok_or(Missed::Guest)?;
    if !feeding.is_empty() {
        return Ok(Began::GoesOn);
    }
    let untold = Untold { living, task: Some(task) };
    let heard = near.listen().await;
    untold.settle();
    match heard {
        Heard::Over(story) => Ok(Began::Over(living.agent.ended_task_of(number, story))),
        Heard::NotBegun(failure) => Err(of_handed(start_failure(&failure, &Named::of(task))).into()),
        Heard::GoesOn => Ok(Began::GoesOn),
    }
}

/// Why a guest did not begin what it has from this process. Its program can say the same of itself while it runs, so it
/// proves nothing: what it says is no reason to begin it once more.
fn of_handed(error: Error) -> Error {
    match error.is_not_started() {
        true => Error::new(ErrorKind::Provider, "the interpreter gave its program up").with_source(error),
        false => error,
    }
}

/// A program of which the agent was not told yet: where nobody waits for it any more, it is, and ends it.
struct Untold<'a> {
    living: &'a Living,
    task: Option<&'a Task>,
}

impl Untold<'_> {
    fn settle(mut self) {
        self.task = None;
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            // Letting go of it ends it.
            drop(self.living.agent.start(task.clone(), None));
        }
    }
}

/// Whoever asked for a last program destroys its sandbox. Where that takes a while, what the program left is ended.
fn end_remains_soon(living: &Arc<Living>, tasks: &Tasks) {
    let living = Arc::downgrade(living);
    tasks.start("what a program left", async move {
        tokio::time::sleep(SOON).await;
        if let Some(living) = living.upgrade() {
            living.agent.end_remains();
        }
    });
}

/// A program on its way: unless it succeeds, nothing is left of it.
struct Starting {
    handle: Option<TaskHandle>,
    journal: Option<ExecJournal>,
}

impl Starting {
    fn succeed(mut self) -> Result<TaskHandle> {
        self.journal = None;
        self.handle.take().ok_or_else(|| lost(AgentError::Gone))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.forget(true);
        }
        if let Some(journal) = &self.journal {
            journal.remove();
        }
    }
}

/// Why a program did not begin.
enum Missed {
    /// The guest that was to run it does not wait, and has nothing of it.
    Guest,
    Failed(Error),
}

impl From<Error> for Missed {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A program that began has measured its walls; what it measured must be what was promised.
///
/// One that takes its whole sandbox down by a limit may do so before anybody heard that it began: it did, and its end will
/// say which limit it was.
async fn wait_for_start(living: &Living, handle: &mut TaskHandle) -> Result<(), Missed> {
    let event = handle.next().await;
    match event {
        Some(TaskEvent::Started(walls)) => Ok(check_walls(&walls)?),
        Some(TaskEvent::Failed(failure)) if failure.step == INTERPRETER => Err(Missed::Guest),
        Some(TaskEvent::Failed(failure)) => Err(start_failure(&failure, &handle.named).into()),
        Some(_) => Err(lost(AgentError::Protocol("an event before the start")).into()),
        // Nobody speaks to it any more, so its end is on its way, however long that takes on a busy machine.
        None => match limit_of(living.end().await.cause) {
            Some(_) => Ok(()),
            None => Err(lost(AgentError::Gone).into()),
        },
    }
}

fn unwritten(error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::AlreadyExists => ErrorKind::Conflict,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::Capacity,
        _ => ErrorKind::Internal,
    };
    let refused = Error::new(kind, "the journal of the exec cannot be written").with_source(error);
    if kind == ErrorKind::Capacity { refused.with_retry_after(FULL) } else { refused }
}
