//! An agent's loop in small, and a guest that is played here, well or badly.

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::pipe::PipeFlags;
use sandstorm_sys::process::{Ending as ReapedEnding, Reaped};
use serde_bytes::ByteBuf;

use super::*;
use crate::protocol::{Ending, Guest, InputStream, Program, Stream, WINDOW};
use crate::task::{self, Port, Running};

const WALLS: PayloadWalls =
    PayloadWalls { uid: 1000, gid: 1000, capabilities: 0, no_new_privs: true, seccomp_mode: 2 };

/// A guest as it is inside.
struct Played {
    side: UnixStream,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Played {
    /// One that has not greeted.
    fn come(guests: &mut Guests, number: u32) -> Self {
        let (inside, side) = UnixStream::pair().unwrap();
        side.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(guests.welcome(number, inside.into()), None);
        Self { side, stdin: None, stdout: None, stderr: None }
    }

    fn send(&self, bytes: &[u8], given: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(given.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(given)));
        rustix::net::sendmsg(&self.side, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    }

    fn greet(&mut self) {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let ((stdin, input), (output, stdout), (error, stderr)) = (pipe(), pipe(), pipe());
        self.send(&warm(2), &[input.as_fd(), output.as_fd(), error.as_fd()]);
        (self.stdin, self.stdout, self.stderr) = (Some(stdin), Some(stdout), Some(stderr));
    }

    fn waiting(guests: &mut Guests, number: u32) -> Self {
        let mut played = Self::come(guests, number);
        played.greet();
        assert_eq!(guests.look(number), Some(FromAgent::GuestReady { guest: number, walls: WALLS }));
        played
    }

    fn read_job(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.side.read_exact(&mut length).unwrap();
        let mut job = vec![0; u32::from_le_bytes(length) as usize];
        self.side.read_exact(&mut job).unwrap();
        job
    }

    fn say(&mut self, bytes: &[u8]) {
        self.side.write_all(bytes).unwrap();
    }
}

fn warm(pid: u32) -> Vec<u8> {
    let mut said = b"WARM".to_vec();
    for number in [pid, 1000, 1000] {
        said.extend(number.to_le_bytes());
    }
    said.extend(0u64.to_le_bytes());
    said.push(1);
    said.extend(2u32.to_le_bytes());
    said
}

fn program(side_channel: bool) -> Program {
    Program {
        argv: vec!["/usr/bin/python3".to_owned(), "a.py".to_owned()],
        env: vec![("A".to_owned(), "é".to_owned())],
        cwd: "/workspace".to_owned(),
        root: false,
        terminal: None,
        side_channel,
        last: false,
        files: vec![(ByteBuf::from("/workspace/a.py"), ByteBuf::from("print(1)"))],
        guest: None,
    }
}

fn run(guests: &mut Guests, number: u32, program: &Program) -> Result<Running, StartFailure> {
    task::hand_over(guests, 5, None, program, Guest::Run(number))
}

/// Moves everything that is ready, as the loop does, and gives what the host would hear. Whatever rests has rested.
fn turn(running: &mut Running) -> Vec<FromAgent> {
    turn_at(running, later())
}

/// A moment at which nothing rests any more.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn turn_at(running: &mut Running, now: Instant) -> Vec<FromAgent> {
    let ports: Vec<Port> = running.interests(true, now).into_iter().map(|(port, ..)| port).collect();
    ports.into_iter().for_each(|port| running.advance(port));
    while running.drain(true) {}
    drop(running.let_go());
    running.take_said(1 << 20, now)
}

fn output(stream: Stream, bytes: &str) -> FromAgent {
    FromAgent::Output { id: 5, stream, bytes: ByteBuf::from(bytes) }
}

fn end(code: i32) -> Reaped {
    Reaped {
        pid: 0,
        ending: ReapedEnding::Code(code),
        user_time: Duration::from_micros(7),
        system_time: Duration::ZERO,
        peak_memory_bytes: 9,
    }
}

#[test]
fn a_program_is_handed_over_and_followed_to_its_end() {
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = run(&mut guests, 1, &program(false)).unwrap();
    assert_eq!((running.pid, running.guest), (2, Some(1)));
    // It has its input before it has read its job.
    running.input(InputStream::Main, b"in").unwrap();
    running.close_input(InputStream::Main);
    let string = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let wanted = [
        &2u32.to_le_bytes()[..],
        &string("/usr/bin/python3"),
        &string("a.py"),
        &1u32.to_le_bytes(),
        &string("A"),
        &string("é"),
        &string("/workspace"),
        &[0],
        &1u32.to_le_bytes(),
        &string("/workspace/a.py"),
        &string("print(1)"),
    ];
    assert_eq!(played.read_job(), wanted.concat());
    let mut given = Vec::new();
    std::fs::File::from(played.stdin.take().unwrap()).read_to_end(&mut given).unwrap();
    assert_eq!(given, b"in");
    assert!(turn(&mut running).is_empty(), "it has not begun yet, and two bytes of credit are no news");
    played.say(&0u32.to_le_bytes());
    assert_eq!(turn(&mut running), [FromAgent::Started { id: 5, walls: WALLS }]);
    rustix::io::write(played.stdout.as_ref().unwrap(), b"1\n").unwrap();
    assert_eq!(turn(&mut running), [output(Stream::Output, "1\n")]);
    rustix::io::write(played.stderr.as_ref().unwrap(), b"late").unwrap();
    drop(played);
    running.ended(end(3));
    let said = turn(&mut running);
    assert!(said.contains(&output(Stream::Error, "late")), "{said:?}");
    let Some(FromAgent::Exited { ending, usage, .. }) = said.last() else { panic!("no end in {said:?}") };
    assert_eq!((*ending, usage.user_microseconds, usage.peak_memory_bytes), (Ending::Code(3), 7, 9));
    assert!(running.is_over());
}

#[test]
fn credit_is_told_before_the_host_could_run_out_of_it() {
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = run(&mut guests, 1, &program(false)).unwrap();
    played.read_job();
    let mut stdin = std::fs::File::from(played.stdin.take().unwrap());
    let piece = vec![7; WINDOW as usize / 8];
    let mut told = Vec::new();
    for _ in 0..4 {
        running.input(InputStream::Main, &piece).unwrap();
        stdin.read_exact(&mut vec![0; piece.len()]).unwrap();
        told.extend(turn(&mut running));
    }
    let credit = FromAgent::Credit { id: 5, to: InputStream::Main, bytes: WINDOW / 4 };
    assert_eq!(told, [credit.clone(), credit]);
}

#[test]
fn what_is_taken_counts_until_the_program_takes_no_more() {
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = task::hand_over(&mut guests, 5, Some([1; 16]), &program(false), Guest::Run(1)).unwrap();
    played.read_job();
    // More than a pipe holds: what waits here is the program's, too, whoever is the host.
    let piece = vec![7; WINDOW as usize / 2];
    running.input(InputStream::Main, &piece).unwrap();
    assert_eq!(running.taken(InputStream::Main), piece.len() as u64);
    assert!(running.hold().is_some());
    assert_eq!(running.taken(InputStream::Main), piece.len() as u64, "the next host hears another count");
    let mut stdin = std::fs::File::from(played.stdin.take().unwrap());
    let mut read = 0;
    while read < piece.len() {
        read += stdin.read(&mut vec![0; piece.len()]).unwrap();
        turn(&mut running);
    }
    assert_eq!(read, piece.len());
    // Its reader goes: what still waited for it, and what comes then, nobody will ever have.
    running.input(InputStream::Main, &piece).unwrap();
    assert_eq!(running.taken(InputStream::Main), 2 * piece.len() as u64);
    drop(stdin);
    turn(&mut running);
    assert!(running.taken(InputStream::Main) < 2 * piece.len() as u64);
    let taken = running.taken(InputStream::Main);
    running.input(InputStream::Main, b"more").unwrap();
    assert_eq!(running.taken(InputStream::Main), taken);
}

#[test]
fn nothing_is_taken_behind_the_end_of_input() {
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = run(&mut guests, 1, &program(false)).unwrap();
    played.read_job();
    let piece = vec![7; WINDOW as usize / 2];
    running.input(InputStream::Main, &piece).unwrap();
    // The end waits behind what does not fit into the pipe yet.
    running.close_input(InputStream::Main);
    running.input(InputStream::Main, b"more").unwrap();
    assert_eq!(running.taken(InputStream::Main), piece.len() as u64);
}

#[test]
fn nothing_of_the_side_channel_is_lost_or_mixed_with_the_job() {
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut large = program(true);
    large.files = vec![(ByteBuf::from("/workspace/data"), ByteBuf::from(vec![7; 450_000]))];
    let mut running = run(&mut guests, 1, &large).unwrap();
    // The job does not fit at once, and the message waits until the program begins: a guest reads all that is there.
    running.input(InputStream::Side, b"message").unwrap();
    running.commit();
    let reading = std::thread::spawn(move || {
        let job = played.read_job();
        played.side.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let early = played.side.read(&mut [0]).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
        // The word and the program's first bytes come in one go.
        played.say(b"\0\0\0\0first");
        let mut message = [0; 7];
        played.side.set_read_timeout(None).unwrap();
        played.side.read_exact(&mut message).unwrap();
        (played, job.len(), message)
    });
    let mut said = Vec::new();
    while !reading.is_finished() {
        said.extend(turn(&mut running));
        std::thread::sleep(Duration::from_millis(1));
    }
    let (_played, length, message) = reading.join().unwrap();
    assert!(length > 450_000);
    assert_eq!(&message, b"message");
    let told: Vec<_> = said.into_iter().filter(|m| !matches!(m, FromAgent::Credit { .. })).collect();
    assert_eq!(told, [FromAgent::Started { id: 5, walls: WALLS }, output(Stream::Side, "first")]);
}

#[test]
fn a_job_that_fails_says_its_step() {
    let cases: [(&[u8], &str, i32); 4] = [
        (b"\x15\0\0\0\x02\0\0\0working directory", "working directory", 2),
        (b"\xff\xff\xff\xff", "guest", Errno::PROTO.raw_os_error()),
        (b"\x01\0\0\0", "guest", Errno::PROTO.raw_os_error()),
        (b"\0\0", "guest", Errno::PIPE.raw_os_error()),
    ];
    for (word, step, errno) in cases {
        let mut guests = Guests::default();
        let mut played = Played::waiting(&mut guests, 1);
        let mut running = run(&mut guests, 1, &program(true)).unwrap();
        played.read_job();
        played.say(word);
        drop(played);
        let said = turn(&mut running);
        let Some(FromAgent::Failed { id: 5, failure }) = said.first() else { panic!("{said:?}") };
        assert_eq!((failure.step.as_str(), failure.errno), (step, errno));
        running.ended(end(1));
        let said = turn(&mut running);
        assert!(matches!(said.last(), Some(FromAgent::Exited { .. })), "{said:?}");
    }
}

#[test]
fn a_program_that_the_host_gave_is_followed_from_wherever_it_is() {
    let handed = |guests: &mut Guests, last| {
        let program = Program { last, ..program(false) };
        task::hand_over(guests, 5, None, &program, Guest::Handed(1))
    };
    let started = FromAgent::Started { id: 5, walls: WALLS };
    let word = |status: u8| -> Vec<u8> {
        [0, 0, 0, 0, status].into_iter().chain([1u64, 2, 3].into_iter().flat_map(u64::to_le_bytes)).collect()
    };
    // It goes on, and ends later.
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = handed(&mut guests, true).unwrap();
    assert_eq!(turn(&mut running).as_slice(), std::slice::from_ref(&started));
    played.say(&word(5));
    let said: Vec<_> = (0..3).flat_map(|_| turn(&mut running)).collect();
    let Some(FromAgent::Exited { ending, .. }) = said.last() else { panic!("no end in {said:?}") };
    assert_eq!(*ending, Ending::Code(5));
    // It fails after all.
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = handed(&mut guests, true).unwrap();
    played.say(&[&9u32.to_le_bytes()[..], &28u32.to_le_bytes(), b"files"].concat());
    let said = turn(&mut running);
    let Some(FromAgent::Failed { failure, .. }) = said.last() else { panic!("no failure in {said:?}") };
    assert_eq!(failure.step, "files");
    // It ended without a word before anybody listened.
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    std::fs::File::from(played.stdout.take().unwrap()).write_all(b"out").unwrap();
    drop(played);
    assert_eq!(guests.ended(1, end(3)), Some(failed(1, "end", Errno::CHILD)), "nobody else is given to it");
    assert_eq!(run(&mut guests, 1, &program(false)).unwrap_err().step, "interpreter");
    let mut running = handed(&mut guests, true).unwrap();
    let mut said = turn(&mut running);
    said.extend(turn(&mut running));
    assert_eq!(said[..2], [started, output(Stream::Output, "out")]);
    let Some(FromAgent::Exited { ending, .. }) = said.last() else { panic!("no end in {said:?}") };
    assert_eq!(*ending, Ending::Code(3));
    assert_eq!(handed(&mut guests, true).unwrap_err().step, "guest", "nobody starts it again");
    // It said its last word before anybody listened.
    let mut played = Played::waiting(&mut guests, 1);
    played.say(&word(7));
    let mut running = handed(&mut guests, true).unwrap();
    let said: Vec<_> = (0..3).flat_map(|_| turn(&mut running)).collect();
    let Some(FromAgent::Exited { ending, .. }) = said.last() else { panic!("no end in {said:?}") };
    assert_eq!(*ending, Ending::Code(7));
}

#[test]
fn a_copy_of_another_runs_at_once_and_may_have_spoken() {
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 3);
    played.say(b"before");
    assert_eq!(guests.look(3), None);
    assert_eq!(guests.interests().count(), 0, "it is not polled in vain");
    let mut running =
        task::hand_over(&mut guests, 5, Some([1; 16]), &program(true), Guest::Transplanted(3)).unwrap();
    running.input(InputStream::Side, b"next").unwrap();
    running.commit();
    let mut heard = [0; 4];
    played.side.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"next", "no job comes before it");
    let said = turn(&mut running);
    assert!(said.contains(&FromAgent::Started { id: 5, walls: WALLS }), "{said:?}");
    assert!(said.contains(&output(Stream::Side, "before")), "{said:?}");
    assert!(running.is_lasting());
}

#[test]
fn a_guest_that_does_not_wait_is_given_nothing() {
    let mut guests = Guests::default();
    let missing = |guests: &mut Guests, number| run(guests, number, &program(false)).unwrap_err();
    assert_eq!(missing(&mut guests, 1).step, "interpreter");
    let played = Played::come(&mut guests, 1);
    assert_eq!(missing(&mut guests, 1).step, "interpreter", "it has not greeted");
    drop(played);
    assert_eq!(guests.look(1), Some(failed(1, "greeting", Errno::PIPE)));
    // One that died unseen, one whose end is told, one that never greeted.
    drop(Played::waiting(&mut guests, 2));
    assert_eq!(missing(&mut guests, 2).step, "interpreter");
    let _played = Played::waiting(&mut guests, 3);
    assert_eq!(guests.ended(3, end(0)), Some(failed(3, "end", Errno::CHILD)));
    assert_eq!(missing(&mut guests, 3).step, "interpreter");
    let _played = Played::come(&mut guests, 4);
    assert_eq!(guests.ended(4, end(0)), Some(failed(4, "end", Errno::CHILD)));
    assert_eq!(guests.ended(4, end(0)), None);
    // Nobody becomes root or gets a terminal this way.
    let _played = Played::waiting(&mut guests, 5);
    let root = Program { root: true, ..program(false) };
    assert_eq!(run(&mut guests, 5, &root).unwrap_err().step, "interpreter");
}

#[test]
fn what_is_no_greeting_is_refused() {
    let (socket, _other) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let good = [write.as_fd(), read.as_fd(), read.as_fd()];
    let cut = &warm(2)[..20];
    let long = [&warm(2)[..], b"x"].concat();
    let cases: [(&[u8], &[BorrowedFd<'_>]); 8] = [
        (b"HELO", &good),
        (b"FAI", &good),
        (cut, &good),
        (&long, &good),
        (&warm(1), &good),
        (&warm(u32::MAX), &good),
        (&warm(2), &good[..2]),
        (&warm(2), &[write.as_fd(), socket.as_fd(), file.as_fd()]),
    ];
    for (said, given) in cases {
        let mut guests = Guests::default();
        let played = Played::come(&mut guests, 1);
        played.send(said, given);
        assert_eq!(guests.look(1), Some(failed(1, "greeting", Errno::PROTO)), "{said:?}");
        assert_eq!(guests.interests().count(), 0);
    }
    let mut guests = Guests::default();
    let mut played = Played::come(&mut guests, 1);
    played.say(b"FAIL\x0c\0\0\0seccomp");
    assert_eq!(guests.look(1), Some(failed(1, "seccomp", Errno::NOMEM)));
}

#[test]
fn those_that_wait_see_the_end_when_they_are_dismissed() {
    let mut guests = Guests::default();
    let mut played: Vec<_> = (1..4).map(|number| Played::waiting(&mut guests, number)).collect();
    guests.dismiss(1);
    assert_eq!(played[0].side.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(guests.outlets(1).map(|_| ()), None);
    assert!(guests.outlets(2).is_some());
    guests.dismiss_all();
    assert_eq!(played[1].side.read(&mut [0; 1]).unwrap(), 0);
}

fn begin_last(guests: &mut Guests) -> (Played, Running) {
    let mut played = Played::waiting(guests, 1);
    let running = run(guests, 1, &Program { last: true, ..program(false) }).unwrap();
    played.read_job();
    played.say(&0u32.to_le_bytes());
    (played, running)
}

fn print(played: &Played, text: &[u8]) {
    rustix::io::write(played.stdout.as_ref().unwrap(), text).unwrap();
}

fn polls_output(running: &Running, now: Instant) -> bool {
    running.interests(true, now).iter().any(|(port, ..)| *port == Port::Output(Stream::Output))
}

#[test]
fn a_short_program_is_told_in_one_go() {
    let early = Instant::now();
    let (mut played, mut running) = begin_last(&mut Guests::default());
    assert_eq!(turn_at(&mut running, early), []);
    print(&played, b"1\n");
    assert!(!polls_output(&running, early), "nobody is woken for it");
    assert_eq!(turn_at(&mut running, early), []);
    played.say(&[&[3][..], &[0; 24]].concat());
    let said = turn_at(&mut running, early);
    let [started, printed, FromAgent::Exited { ending, .. }] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*started, FromAgent::Started { id: 5, walls: WALLS });
    assert_eq!((printed, *ending), (&output(Stream::Output, "1\n"), Ending::Code(3)));
    // The guest waits for its end and is not listened to; that comes with the sandbox's, or by itself a moment later.
    print(&played, b"more");
    assert!(running.interests(true, later()).is_empty());
    played.side.set_nonblocking(true).unwrap();
    assert_eq!(played.side.read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let due = running.next_look(early).expect("it is looked at again");
    assert!(due - Instant::now() <= Duration::from_millis(10) && !running.is_over());
    running.clear_away(due);
    assert!(running.is_over());
}

#[test]
fn a_program_that_goes_on_is_told_of_in_time() {
    let early = Instant::now();
    let (played, mut running) = begin_last(&mut Guests::default());
    print(&played, b"1\n");
    assert_eq!(turn_at(&mut running, early), []);
    let look = running.next_look(early).expect("it is looked at again");
    assert!(look - Instant::now() <= Duration::from_millis(1));
    assert_eq!(
        turn_at(&mut running, look),
        [FromAgent::Started { id: 5, walls: WALLS }, output(Stream::Output, "1\n")]
    );
    // What follows a small piece waits for more, for as long.
    assert!(!polls_output(&running, early) && polls_output(&running, later()));
    print(&played, b"2\n");
    print(&played, b"3\n");
    assert_eq!(turn_at(&mut running, early), []);
    assert_eq!(turn(&mut running), [output(Stream::Output, "2\n3\n")]);
}

#[test]
fn a_flood_is_taken_at_once() {
    let early = Instant::now();
    let (played, mut running) = begin_last(&mut Guests::default());
    turn(&mut running);
    print(&played, &[b'x'; 4096]);
    turn(&mut running);
    assert!(polls_output(&running, early));
}

#[test]
fn what_was_printed_comes_with_the_word_on_the_side_channel() {
    let early = Instant::now();
    let mut guests = Guests::default();
    let mut played = Played::waiting(&mut guests, 1);
    let mut running = run(&mut guests, 1, &program(true)).unwrap();
    played.read_job();
    played.say(&0u32.to_le_bytes());
    assert_eq!(
        turn_at(&mut running, early),
        [FromAgent::Started { id: 5, walls: WALLS }],
        "it waits for work"
    );
    running.input(InputStream::Side, b"cell").unwrap();
    running.commit();
    print(&played, b"1\n");
    assert!(!polls_output(&running, early) && polls_output(&running, later()));
    played.say(b"done");
    let said = turn_at(&mut running, early);
    let told: Vec<_> = said.into_iter().filter(|m| !matches!(m, FromAgent::Credit { .. })).collect();
    assert_eq!(told, [output(Stream::Output, "1\n"), output(Stream::Side, "done")]);
    assert!(running.next_look(early).is_none(), "its turn is over");
}

/// A last program that its guest has from the host, which took nothing of what the guest said.
fn handed(said: &[u8]) -> (Played, UnixStream, Running) {
    let mut guests = Guests::default();
    let (inside, side) = UnixStream::pair().unwrap();
    side.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The host holds the agent's end as well.
    let held = inside.try_clone().unwrap();
    assert_eq!(guests.welcome(1, inside.into()), None);
    let mut played = Played { side, stdin: None, stdout: None, stderr: None };
    played.greet();
    assert!(guests.look(1).is_some());
    played.say(said);
    let program = Program { last: true, ..program(false) };
    let running = task::hand_over(&mut guests, 5, None, &program, Guest::Handed(1)).unwrap();
    (played, held, running)
}

#[test]
fn a_program_that_speaks_for_its_guest_ends_as_it_ends() {
    let short = [7; 3];
    let long = [[0; 40], [1; 40]].concat();
    let half = &[&[0; 4][..], &[3], &[0; 10]].concat();
    let unended = [200, 0, 0, 0, 1];
    for bad in [&short[..], &[1], &[0], &long, half, &unended, &[9; 5000]] {
        let (mut played, _held, mut running) = handed(bad);
        let told = turn(&mut running);
        assert_eq!(told, [FromAgent::Started { id: 5, walls: WALLS }], "{bad:?}");
        // The guest hears at once that nobody waits for its word: it does not wait to be ended either.
        assert_eq!(played.side.read(&mut [0; 1]).unwrap(), 0, "{bad:?}");
        print(&played, b"1\n");
        assert_eq!(turn(&mut running), [output(Stream::Output, "1\n")]);
        running.ended(end(6));
        let told = turn(&mut running);
        let [FromAgent::Exited { ending, .. }] = &told[..] else { panic!("{bad:?}: {told:?}") };
        assert_eq!(*ending, Ending::Code(6), "{bad:?}");
    }
}
