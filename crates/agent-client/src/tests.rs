//! A host and an agent that is played here, well or badly.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::pipe::PipeFlags;
use sandstorm_agent::frame::{self, Decoder};
use sandstorm_agent::protocol::{
    Described, Ending, FromAgent, Held, InputStream, OLDEST, PayloadWalls, StartFailure, Stream, Task,
    TaskUsage, ToAgent, VERSION, WINDOW, cost,
};
use sandstorm_provider::{ExecInput, Stdin, Tasks};
use sandstorm_types::{ErrorKind, User};
use serde_bytes::ByteBuf;
use tokio::sync::oneshot;

use super::{AgentClient, AgentError, TaskEvent, TaskHandle, TaskInput, of_found, of_request};

struct Player {
    socket: UnixStream,
    decoder: Decoder,
}

impl Player {
    fn start() -> (Self, AgentClient) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let client = AgentClient::taking_over(theirs.into(), &Tasks::default(), 8).unwrap();
        (Self { socket: ours, decoder: Decoder::default() }, client)
    }

    fn say(&mut self, message: FromAgent) {
        self.socket.write_all(&frame::encode(&message).unwrap()).unwrap();
    }

    /// Says something with descriptors beside it.
    fn lend(&mut self, message: FromAgent, descriptors: &[BorrowedFd<'_>]) {
        let frame = frame::encode(&message).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(descriptors)));
        let frame = [IoSlice::new(&frame)];
        rustix::net::sendmsg(&self.socket, &frame, &mut beside, SendFlags::empty()).unwrap();
    }

    fn output(&mut self, id: u32, bytes: usize) {
        let bytes = ByteBuf::from(vec![b'x'; bytes]);
        self.say(FromAgent::Output { id, stream: Stream::Output, bytes });
    }

    fn hear(&mut self) -> ToAgent {
        loop {
            if let Some(message) = self.decoder.take().unwrap() {
                return message;
            }
            let mut buffer = [0; 4096];
            let n = self.socket.read(&mut buffer).expect("the host says nothing");
            assert!(n > 0, "the host closed the connection");
            self.decoder.push(&buffer[..n]);
        }
    }
}

fn held(id: u32) -> FromAgent {
    FromAgent::Held(Held { id, tag: [id as u8; 16], walls: None, first: [0; 3], pending: [100, 0] })
}

fn exited(id: u32) -> FromAgent {
    let usage = TaskUsage { user_microseconds: 0, system_microseconds: 0, peak_memory_bytes: 0 };
    FromAgent::Exited { id, ending: Ending::Code(0), usage }
}

async fn breaks(client: &AgentClient, why: &'static str) {
    client.lost().await;
    assert_eq!(client.ready().await, Err(AgentError::Protocol(why)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_breaks_the_rules_loses_the_connection() {
    let ready = |held| FromAgent::Ready { version: VERSION, held };
    let cases: [(Vec<FromAgent>, &'static str); 6] = [
        (vec![FromAgent::Ready { version: VERSION + 1, held: 0 }], "another version"),
        (vec![ready(9)], "a greeting that is none"),
        (vec![ready(0), ready(0)], "a greeting that is none"),
        (vec![held(1)], "a task that nobody asked for"),
        (vec![ready(1), held(1), held(2)], "a task that nobody asked for"),
        (vec![ready(2), held(1), held(1)], "a task that is told twice"),
    ];
    for (said, why) in cases {
        let (mut player, client) = Player::start();
        for message in said {
            player.say(message);
        }
        breaks(&client, why).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_says_no_more_than_its_window_and_a_few_words() {
    for (bytes, pieces) in [(60_000, WINDOW / cost(60_000) + 1), (0, WINDOW / cost(0) + 1)] {
        let (mut player, client) = Player::start();
        player.say(FromAgent::Ready { version: VERSION, held: 0 });
        let _handle = client.start(Task::Connect { port: 1 }, None).unwrap();
        for _ in 0..pieces {
            player.output(1, bytes);
        }
        breaks(&client, "more output than was asked for").await;
    }
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let _handle = client.start(Task::Connect { port: 1 }, None).unwrap();
    for _ in 0..17 {
        player.say(FromAgent::Closed { id: 1, stream: Stream::Output });
    }
    breaks(&client, "a task without end of words").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_hand_is_not_acknowledged() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let mut handle = client.start(Task::Connect { port: 1 }, Some([7; 16])).unwrap();
    assert!(matches!(player.hear(), ToAgent::Start { id: 1, lasting: Some(tag), .. } if tag == [7; 16]));
    player.output(1, 65_536);
    assert!(matches!(handle.next().await, Some(TaskEvent::Output { .. })));
    player.say(exited(1));
    // A word of the host's that is behind a credit, if there is one.
    handle.input.close().unwrap();
    assert!(matches!(player.hear(), ToAgent::CloseInput { .. }), "it was acknowledged too early");
    assert!(matches!(handle.next().await, Some(TaskEvent::Exited { .. })));
    let credit = ToAgent::Credit { id: 1, stream: Stream::Output, bytes: cost(65_536) };
    assert_eq!(player.hear(), credit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pieces_become_one() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let mut handle = client.start(Task::Connect { port: 1 }, None).unwrap();
    for _ in 0..1000 {
        player.output(1, 1);
    }
    player.say(exited(1));
    // Everything has come when the end of it has.
    drop(player);
    client.lost().await;
    let (mut total, mut events) = (0, 0);
    while let Some(TaskEvent::Output { bytes, .. }) = handle.next().await {
        total += bytes.len();
        events += 1;
    }
    assert_eq!((total, events), (1000, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_listens_to_ends_unless_it_lasts() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    drop(client.start(Task::Connect { port: 1 }, None).unwrap());
    assert!(matches!(player.hear(), ToAgent::Start { id: 1, .. }));
    assert_eq!(player.hear(), ToAgent::Signal { id: 1, signal: 9 });
    assert_eq!(player.hear(), ToAgent::Forget { id: 1 });
    drop(client.start(Task::Connect { port: 1 }, Some([1; 16])).unwrap());
    assert!(matches!(player.hear(), ToAgent::Start { id: 2, .. }));
    drop(client.start(Task::Connect { port: 1 }, None).unwrap());
    assert!(matches!(player.hear(), ToAgent::Start { id: 3, .. }), "what lasts was ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_an_earlier_host_are_found_with_what_they_owe() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 1 });
    player.say(held(40));
    player.output(40, 3);
    client.ready().await.unwrap();
    let mut found = client.take_held();
    let (told, mut handle) = found.pop().unwrap();
    assert_eq!((told.tag, told.pending), ([40; 16], [100, 0]));
    assert!(matches!(handle.next().await, Some(TaskEvent::Output { bytes, .. }) if bytes.len() == 3));
    // New tasks get other numbers, and input waits for the credit that the earlier host did not get.
    let _new = client.start(Task::Connect { port: 1 }, None).unwrap();
    assert!(matches!(player.hear(), ToAgent::Start { id: 41, .. }));
    let room = WINDOW as usize - 100;
    let input = TaskInput { to: InputStream::Main, ..handle.input.clone() };
    let bytes = vec![0; room + 1];
    let writing = input.write(&bytes);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), writing).await.is_err(),
        "it wrote past the window"
    );
}

/// The caller's end of a program's standard input.
fn input_of(handle: &TaskHandle) -> ExecInput {
    let (input, _, feeding) = of_found(true, false);
    feeding.feed(&handle.input, &Tasks::default());
    input
}

/// Delivers bytes beside the test.
fn deliver(
    input: &ExecInput,
    bytes: &'static str,
) -> oneshot::Receiver<sandstorm_provider::Result<Option<u64>>> {
    let (to, told) = oneshot::channel();
    let input = input.clone();
    Tasks::default().start("deliver", async move {
        let _ = to.send(input.deliver(bytes, None).await);
    });
    told
}

fn taken(bytes: u64) -> FromAgent {
    FromAgent::Taken { id: 1, to: InputStream::Main, bytes }
}

const ASKED: ToAgent = ToAgent::AskTaken { id: 1, to: InputStream::Main };

fn came(bytes: &[u8]) -> ToAgent {
    ToAgent::Input { id: 1, to: InputStream::Main, bytes: ByteBuf::from(bytes) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_is_delivered_when_the_agent_has_it_and_no_sooner() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let handle = client.start(Task::Connect { port: 1 }, Some([1; 16])).unwrap();
    let input = input_of(&handle);
    assert!(matches!(player.hear(), ToAgent::Start { .. }));
    let mut delivering = deliver(&input, "word");
    assert_eq!(player.hear(), ASKED);
    player.say(taken(0));
    assert_eq!((player.hear(), player.hear()), (came(b"word"), ASKED));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut delivering).await;
    assert!(early.is_err(), "it was acknowledged before the agent had it: {early:?}");
    player.say(taken(4));
    assert_eq!(delivering.await.unwrap().unwrap(), Some(4));
    // Others go on meanwhile, and one that the program did not take is told so.
    let first = deliver(&input, "a");
    assert_eq!((player.hear(), player.hear()), (came(b"a"), ASKED));
    let second = deliver(&input, "b");
    assert_eq!((player.hear(), player.hear()), (came(b"b"), ASKED));
    player.say(taken(5));
    player.say(taken(5));
    assert_eq!(first.await.unwrap().unwrap(), Some(5));
    assert_eq!(second.await.unwrap().unwrap_err().kind(), ErrorKind::Conflict);
    // Nor does the end of the connection acknowledge anything.
    let last = deliver(&input, "c");
    assert_eq!((player.hear(), player.hear()), (came(b"c"), ASKED));
    drop(player);
    assert_eq!(last.await.unwrap().unwrap_err().kind(), ErrorKind::Conflict);
}

/// A program that has what it needs may end before the agent is asked, and before its answer comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_that_a_program_took_before_its_end_is_delivered() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    let handle = client.start(Task::Connect { port: 1 }, Some([1; 16])).unwrap();
    let input = input_of(&handle);
    let task = handle.input.clone();
    assert!(matches!(player.hear(), ToAgent::Start { .. }));
    let asked_before = deliver(&input, "word");
    assert_eq!(player.hear(), ASKED);
    player.say(taken(0));
    assert_eq!((player.hear(), player.hear()), (came(b"word"), ASKED));
    drop(handle);
    player.say(taken(4));
    assert_eq!(asked_before.await.unwrap().unwrap(), Some(4));
    let answers = async {
        while player.hear() != ASKED {}
        player.say(taken(4));
    };
    assert_eq!(tokio::join!(task.taken(), answers).0.unwrap(), 4);
    player.say(taken(4));
    breaks(&client, "an answer without a question").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_goes_on_where_the_agent_says_an_earlier_host_stopped() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 1 });
    player.say(held(1));
    client.ready().await.unwrap();
    let (_, handle) = client.take_held().pop().unwrap();
    let input = input_of(&handle);
    let agent = tokio::task::spawn_blocking(move || {
        // What it has is asked once: from there on the host counts for itself.
        assert_eq!(player.hear(), ASKED);
        player.say(taken(6));
        assert_eq!(player.hear(), ASKED);
        player.say(taken(6));
        assert_eq!((player.hear(), player.hear()), (came(b"ghi"), ASKED));
        player.say(taken(9));
        assert_eq!(player.hear(), ASKED);
        player.say(taken(9));
        player
    });
    let gap = input.deliver("x", Some(7)).await.unwrap_err();
    assert_eq!(gap.kind(), ErrorKind::Conflict);
    assert_eq!(input.deliver("", None).await.unwrap(), Some(6));
    assert_eq!(input.deliver("efghi", Some(4)).await.unwrap(), Some(9));
    assert_eq!(input.deliver("abc", Some(0)).await.unwrap(), Some(9));
    let mut player = agent.await.unwrap();
    player.say(taken(9));
    breaks(&client, "an answer without a question").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_an_earlier_version_is_asked_nothing_that_it_does_not_know() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: OLDEST, held: 0 });
    let handle = client.start(Task::Connect { port: 1 }, Some([1; 16])).unwrap();
    let (input, _, feeding) = of_request(Stdin::Stream, false);
    feeding.feed(&handle.input, &Tasks::default());
    assert!(matches!(player.hear(), ToAgent::Start { .. }));
    assert_eq!(input.deliver("word", Some(0)).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(input.deliver("word", None).await.unwrap(), None);
    input.close().await.unwrap();
    assert_eq!(player.hear(), came(b"word"));
    assert_eq!(player.hear(), ToAgent::CloseInput { id: 1, to: InputStream::Main });
}

const WALLS: PayloadWalls =
    PayloadWalls { uid: 1000, gid: 1000, capabilities: 0, no_new_privs: true, seccomp_mode: 2 };

fn failed(guest: u32) -> FromAgent {
    let failure = StartFailure { step: "seccomp".repeat(100), errno: 12 };
    FromAgent::GuestFailed { guest, failure }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guests_are_heard_of_by_whoever_waits_for_them() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    player.say(FromAgent::GuestReady { guest: 1, walls: WALLS });
    // Told before anybody asked, and after.
    assert_eq!(client.guest_ready(1).await, Ok(WALLS));
    let (other, waiting) = (client.clone(), client.clone());
    let waiting = tokio::join!(async { waiting.guest_ready(2).await }, async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        player.say(failed(2));
    });
    let Err(AgentError::Guest(failure)) = waiting.0 else { panic!("{waiting:?}") };
    assert_eq!((failure.step.len(), failure.errno), (100, 12), "what is too long is cut");
    assert!(client.take_guest(1));
    assert!(!client.take_guest(1), "it was taken");
    assert!(!client.take_guest(2), "it failed");
    assert!(!client.take_guest(3), "nobody knows it");
    // One that waited and then did not.
    player.say(FromAgent::GuestReady { guest: 4, walls: WALLS });
    other.guest_ready(4).await.unwrap();
    player.say(failed(4));
    while other.guest_ready(4).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!client.take_guest(4));
    client.dismiss(5);
    assert_eq!(player.hear(), ToAgent::Dismiss { guest: 5 });
    let lost = tokio::join!(client.guest_ready(6), async { drop(player) });
    assert_eq!(lost.0, Err(AgentError::Gone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outlets_come_with_the_first_guest_or_not_at_all() {
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap().0;
    let file = std::fs::File::open("/dev/null").unwrap();
    let (pipe, file) = (pipe.as_fd(), file.as_fd());
    let guest = |guest| FromAgent::GuestReady { guest, walls: WALLS };
    let cases: [(&[BorrowedFd<'_>], bool); 5] = [
        (&[pipe, pipe], true),
        (&[pipe], false),
        (&[pipe, file], false),
        (&[pipe, pipe, pipe], false),
        (&[file; 8], false),
    ];
    for (descriptors, fit) in cases {
        let (mut player, client) = Player::start();
        player.say(FromAgent::Ready { version: VERSION, held: 0 });
        player.lend(guest(1), descriptors);
        // What comes right behind is heard, too.
        player.say(guest(2));
        assert_eq!(client.guest_ready(2).await, Ok(WALLS));
        assert_eq!(client.guest_ready(1).await, Ok(WALLS));
        assert_eq!(client.take_outlets(1).is_some(), fit, "{} descriptors", descriptors.len());
        assert!(client.take_outlets(1).is_none() && client.take_outlets(2).is_none());
    }
    // Nobody asked for these: they are closed, and nothing else happens.
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    player.say(guest(1));
    player.lend(guest(2), &[read.as_fd(), read.as_fd()]);
    assert_eq!(client.guest_ready(1).await, Ok(WALLS));
    assert_eq!(client.guest_ready(2).await, Ok(WALLS));
    assert!(client.take_outlets(2).is_none());
    drop((client, player, read));
    let mut closed = [rustix::event::PollFd::new(&write, rustix::event::PollFlags::empty())];
    let patience = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut closed, Some(&patience)).unwrap(), 1, "somebody still holds one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_does_not_tell_of_guests_without_end() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    for guest in 0..=256 {
        player.say(FromAgent::GuestReady { guest, walls: WALLS });
    }
    breaks(&client, "guests without end").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_and_its_input_come_in_one_go() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    client.ready().await.unwrap();
    assert!(client.is_untouched());
    let handle = client.start_with(Task::Connect { port: 1 }, None, b"input").unwrap();
    assert!(!client.is_untouched());
    let mut buffer = [0; 4096];
    let n = player.socket.read(&mut buffer).unwrap();
    player.decoder.push(&buffer[..n]);
    let mut next = || player.decoder.take::<ToAgent>().unwrap().expect("it came in pieces");
    assert!(matches!(next(), ToAgent::Start { id: 1, .. }));
    let (id, to) = (1, InputStream::Main);
    assert_eq!(next(), ToAgent::Input { id, to, bytes: ByteBuf::from("input") });
    assert_eq!(next(), ToAgent::CloseInput { id, to });
    // What went with it counts for the window.
    let rest = vec![0; WINDOW as usize - 4];
    let writing = handle.input.write(&rest);
    assert!(tokio::time::timeout(Duration::from_millis(100), writing).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_waits_and_keeps_its_order() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    client.ready().await.unwrap();
    let handles: Vec<_> =
        (0..12).map(|_| client.start(Task::Connect { port: 1 }, Some([0; 16])).unwrap()).collect();
    for handle in &handles {
        handle.input.write(&vec![handle.id as u8; WINDOW as usize]).await.unwrap();
    }
    for id in 1..=12 {
        assert!(matches!(player.hear(), ToAgent::Start { id: told, .. } if told == id));
    }
    for id in 1..=12 {
        for _ in 0..4 {
            let ToAgent::Input { id: told, bytes, .. } = player.hear() else { panic!("not in order") };
            assert_eq!((told, bytes[0], bytes.len()), (id, id as u8, 65_536));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_reads_nothing_is_given_no_more() {
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    client.ready().await.unwrap();
    let started = |_| client.start_with(Task::Connect { port: 1 }, Some([0; 16]), &[0; 60_000]);
    let refused = (0..1000).map(started).find_map(Result::err);
    assert_eq!(refused, Some(AgentError::Protocol("it does not read what it is sent")));
}

/// More than a host takes of any of these: a window of each stream, and what one answer may be.
const FAR_TOO_MUCH: u64 = 2 << 20;

/// Plays one file operation to which the agent says the same thing for ever, no faster than it is allowed to. The host must
/// have heard enough soon.
fn play_file_task(stream: Stream, bytes: Vec<u8>) -> (AgentClient, std::thread::JoinHandle<()>) {
    let (mut player, client) = Player::start();
    let playing = std::thread::spawn(move || {
        let mut said = 0;
        player.say(FromAgent::Ready { version: VERSION, held: 0 });
        let ToAgent::Start { id, .. } = player.hear() else { panic!("nothing was started") };
        let (each, mut credit) = (cost(bytes.len()), WINDOW);
        loop {
            while credit < each {
                match player.hear() {
                    ToAgent::Credit { bytes, .. } => credit += bytes,
                    // The host has heard enough.
                    _ => return,
                }
            }
            credit -= each;
            said += bytes.len() as u64;
            assert!(said < FAR_TOO_MUCH, "the host takes whatever it is told");
            player.say(FromAgent::Output { id, stream, bytes: ByteBuf::from(bytes.clone()) });
        }
    });
    (client, playing)
}

fn entry(name: usize) -> sandstorm_agent::protocol::Entry {
    sandstorm_agent::protocol::Entry {
        name: ByteBuf::from(format!("{name}").into_bytes()),
        kind: sandstorm_agent::protocol::EntryKind::File,
        size: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        modified: 0,
        target: None,
    }
}

fn described(name: usize) -> Vec<u8> {
    frame::encode(&Described { entry: entry(name), metadata: Vec::new() }).unwrap()
}

/// What a hostile agent says is bounded by what it was asked for, whichever operation that was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_operation_says_no_more_than_it_was_asked_for() {
    use crate::files;
    use sandstorm_provider::{FileOp, ReadRange, WatchOptions};

    let path = || "/workspace/x".parse().unwrap();
    let because = |error: sandstorm_provider::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error} {source}")
    };
    let without_end = "an answer without end";
    let entries = described(7).repeat(64);
    let names = frame::encode(&entry(7)).unwrap().repeat(64);
    let words = || (Stream::Error, vec![0; 4096], "errors without end");
    let list = FileOp::List { path: path(), depth: 1, limit: 100 };
    let search = FileOp::Search { root: path(), pattern: "*".to_owned(), limit: 100 };
    for (op, (stream, bytes, why)) in [
        (list, (Stream::Output, entries, without_end)),
        (search, (Stream::Output, names.clone(), without_end)),
        (FileOp::Stat { path: path() }, (Stream::Output, described(7), without_end)),
        (FileOp::MakeDir { path: path() }, (Stream::Output, names, without_end)),
        (FileOp::MakeDir { path: path() }, words()),
        (FileOp::Pack { path: path() }, words()),
    ] {
        let (client, playing) = play_file_task(stream, bytes);
        let refused = files::operate(&client, User::User, op).await.unwrap_err();
        playing.join().unwrap();
        assert!(because(refused).contains(why), "{why}");
    }
    let (stream, bytes, why) = words();
    let (client, playing) = play_file_task(stream, bytes);
    let watched = files::watch(&client, User::User, &path(), WatchOptions::default()).await;
    playing.join().unwrap();
    assert!(because(watched.map(drop).unwrap_err()).contains(why));
    let (reading, playing) = play_file_task(Stream::Output, vec![0; 1000]);
    let range = ReadRange { offset: 0, length: Some(2500) };
    // Pieces may be joined, so that the first is too long already.
    let refused = match files::read(&reading, User::User, &path(), range).await {
        Ok(read) => read.collect(1 << 30).await.unwrap_err(),
        Err(error) => error,
    };
    playing.join().unwrap();
    assert!(because(refused).contains("more of a file than was asked for"));
}

/// An agent of an earlier version takes what it does not know for a broken connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_agent_is_asked_for_no_metadata_and_nothing_of_root() {
    use crate::files;
    use sandstorm_agent::protocol::FileTask;
    use sandstorm_provider::{ByteStream, FileOp, FileReply, WriteOptions};

    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: OLDEST, held: 0 });
    let path: sandstorm_types::GuestPath = "/workspace/x".parse().unwrap();
    let options = WriteOptions { metadata: [("a".to_owned(), "b".to_owned())].into() };
    let body = || ByteStream::from(bytes::Bytes::from("x"));
    let kept = files::write(&client, User::User, &path, options, body()).await.unwrap_err();
    assert_eq!(kept.kind(), ErrorKind::Conflict);
    let root = files::operate(&client, User::Root, FileOp::Stat { path: path.clone() }).await.unwrap_err();
    assert_eq!(root.kind(), ErrorKind::Conflict);
    let playing = std::thread::spawn(move || {
        let ToAgent::Start { id, task, .. } = player.hear() else { panic!("nothing was started") };
        assert!(matches!(task, Task::File(FileTask::Stat { .. })), "{task:?}");
        let bytes = ByteBuf::from(frame::encode(&entry(7)).unwrap());
        player.say(FromAgent::Output { id, stream: Stream::Output, bytes });
        let usage = TaskUsage { user_microseconds: 0, system_microseconds: 0, peak_memory_bytes: 0 };
        player.say(FromAgent::Exited { id, ending: Ending::Code(0), usage });
        player
    });
    let stat = files::operate(&client, User::User, FileOp::Stat { path }).await.unwrap();
    let FileReply::Info(info) = stat else { panic!("{stat:?}") };
    assert_eq!((info.owner, info.metadata.len()), (Some(User::Root), 0));
    playing.join().unwrap();
}

/// More than the socket and all that may wait would hold: whoever finds no room waits for it, and nothing breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_of_many_tasks_takes_turns_for_the_room() {
    const TASKS: usize = 64;
    let (mut player, client) = Player::start();
    player.say(FromAgent::Ready { version: VERSION, held: 0 });
    client.ready().await.unwrap();
    let handles: Vec<_> =
        (0..TASKS).map(|_| client.start(Task::Connect { port: 1 }, None).unwrap()).collect();
    let window = vec![b'x'; WINDOW as usize];
    let writing = futures_util::future::join_all(handles.iter().map(|handle| handle.input.write(&window)));
    tokio::pin!(writing);
    // The agent reads nothing yet.
    let waiting = tokio::time::timeout(Duration::from_millis(300), &mut writing).await;
    assert!(waiting.is_err(), "all of it found room: {waiting:?}");
    // What has to get through does.
    handles[0].input.say(ToAgent::Signal { id: 1, signal: 9 }).unwrap();
    let reading = std::thread::spawn(move || {
        let (mut bytes, mut signals) = (0, 0);
        while bytes < TASKS * WINDOW as usize {
            match player.hear() {
                ToAgent::Input { bytes: piece, .. } => bytes += piece.len(),
                ToAgent::Signal { .. } => signals += 1,
                _ => {}
            }
        }
        (bytes, signals)
    });
    let written = tokio::time::timeout(Duration::from_secs(60), writing).await.unwrap();
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    assert_eq!(reading.join().unwrap(), (TASKS * WINDOW as usize, 1));
}
