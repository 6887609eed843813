//! What a journal gives back after its writer was killed.

use bytes::Bytes;
use sandstorm_provider::{EndCause, ExecEnd, ExecLog, ExecStatus, Keep, Usage};
use sandstorm_types::{ByteSize, Denied, DeniedProtocol, LimitName, LimitSet, Stream, Timestamp};

use super::*;
use crate::exec::Tally;

const ABOUT: About = About {
    limit: Some(1 << 30),
    lasting: true,
    input: true,
    channel: true,
    began: Tally { memory_kills: 2, process_refusals: 7 },
    guest: Some(3),
};

fn output(stream: Stream, offset: u64, text: &str) -> ExecEvent {
    ExecEvent::Output { stream, offset, bytes: Bytes::copy_from_slice(text.as_bytes()) }
}

fn end() -> ExecEnd {
    ExecEnd {
        status: ExecStatus::Signal(9),
        cause: EndCause::Limit(LimitName::Wall),
        limits_hit: LimitSet::EMPTY.with(LimitName::Disk),
        denied: vec![Denied {
            host: Some("a.test".to_owned()),
            port: Some(443),
            protocol: DeniedProtocol::Tcp,
            reason: "not_allowed".to_owned(),
            message: "why".to_owned(),
            count: 2,
            at: Timestamp::from_millis(1),
        }],
        written: PerStream { stdout: 4, stderr: 3 },
        truncated: PerStream { stdout: true, stderr: false },
        usage: Usage {
            cpu: Duration::from_millis(7),
            memory: ByteSize::bytes(1),
            peak_memory: ByteSize::bytes(2),
            processes: 3,
            disk: ByteSize::bytes(4),
            inodes: 5,
        },
    }
}

fn all(journal: &ExecJournal, from: u64) -> Vec<ExecEvent> {
    let (mut events, mut next) = (Vec::new(), from);
    loop {
        let more = journal.read(next).unwrap();
        if more.is_empty() {
            return events;
        }
        next += more.len() as u64;
        events.extend(more);
    }
}

#[test]
fn events_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sandbox/exec");
    let journal = ExecJournal::create(path.clone(), ABOUT).unwrap();
    assert_eq!(ExecJournal::open(&path).unwrap().restored(), None);
    let events = [
        ExecEvent::Started,
        output(Stream::Stdout, 0, "one"),
        output(Stream::Stderr, 0, "two"),
        ExecEvent::Channel { offset: 0, bytes: Bytes::from_static(b"side") },
        output(Stream::Stdout, 3, "x"),
        ExecEvent::Exited(end()),
    ];
    for (number, event) in events.iter().enumerate() {
        journal.append(number as u64, event).unwrap();
    }
    assert!(journal.append(9, &ExecEvent::Started).is_err());
    let found = ExecJournal::open(&path).unwrap();
    assert_eq!(found.about(), ABOUT);
    for from in 0..=events.len() {
        assert_eq!(all(&found, from as u64), events[from..]);
    }
    let restored = Restored {
        first: 0,
        next: 6,
        kept: PerStream { stdout: 4, stderr: 3 },
        written: PerStream { stdout: 4, stderr: 3 },
        channel: 4,
        ended: true,
    };
    assert_eq!(found.restored(), Some(restored));
    assert!(ExecJournal::create(path, ABOUT).is_err(), "a journal is written over");
}

#[test]
fn a_torn_tail_is_cut_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exec");
    let journal = ExecJournal::create(path.clone(), ABOUT).unwrap();
    journal.append(0, &ExecEvent::Started).unwrap();
    let whole = fs::metadata(&path).unwrap().len();
    journal.append(1, &output(Stream::Stdout, 0, "torn")).unwrap();
    let bytes = fs::read(&path).unwrap();
    for length in whole..bytes.len() as u64 {
        fs::write(&path, &bytes[..length as usize]).unwrap();
        let found = ExecJournal::open(&path).unwrap();
        assert_eq!(found.restored().unwrap().next, 1, "{length}");
        found.append(1, &output(Stream::Stdout, 0, "again")).unwrap();
        assert_eq!(all(&ExecJournal::open(&path).unwrap(), 1), [output(Stream::Stdout, 0, "again")]);
    }
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(ExecJournal::open(&path).unwrap().restored().unwrap().next, 1);
    fs::write(&path, b"no journal").unwrap();
    assert!(ExecJournal::open(&path).is_err());
}

#[test]
fn what_is_forgotten_leaves_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exec");
    let journal = ExecJournal::create(path.clone(), ABOUT).unwrap();
    journal.append(0, &ExecEvent::Started).unwrap();
    let piece = "x".repeat(60_000);
    for n in 0..100 {
        journal.append(n + 1, &output(Stream::Stdout, n * 60_000, &piece)).unwrap();
    }
    journal.set_clock(Duration::from_secs(50), false).unwrap();
    assert!((6_000_000..6_100_000).contains(&journal.unforgotten()), "{}", journal.unforgotten());
    // Too little to write the file anew, and it counts.
    journal.forget(11).unwrap();
    assert_eq!(all(&journal, 1).len(), 100);
    assert!((5_400_000..5_500_000).contains(&journal.unforgotten()), "{}", journal.unforgotten());
    journal.forget(80).unwrap();
    assert!(journal.read(79).is_err(), "events have other numbers than they had");
    assert!((1_260_000..1_400_000).contains(&journal.unforgotten()), "{}", journal.unforgotten());
    assert!(fs::metadata(&path).unwrap().len() < 2_000_000);
    for found in [journal.clone(), ExecJournal::open(&path).unwrap()] {
        let restored = found.restored().unwrap();
        assert_eq!((restored.first, restored.next, restored.kept.stdout), (80, 101, 6_000_000));
        assert_eq!(all(&found, 80).len(), 21);
        assert_eq!(all(&found, 100), [output(Stream::Stdout, 99 * 60_000, &piece)]);
        assert_eq!(found.time_left(), Some(Duration::from_secs(50)));
    }
    journal.forget(101).unwrap();
    assert_eq!(journal.unforgotten(), 0);
    assert!(fs::metadata(&path).unwrap().len() < 200);
    journal.append(101, &output(Stream::Stdout, 6_000_000, "on")).unwrap();
    let restored = ExecJournal::open(&path).unwrap().restored().unwrap();
    assert_eq!((restored.first, restored.next, restored.kept.stdout), (101, 102, 6_000_002));
}

#[test]
fn what_was_not_kept_is_still_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exec");
    let journal = ExecJournal::create(path.clone(), ABOUT).unwrap();
    let log = ExecLog::journaled(Keep::UpTo(ByteSize::bytes(3)), Box::new(journal)).unwrap();
    log.write(Stream::Stdout, Bytes::from_static(b"abcdef")).unwrap();
    log.write(Stream::Stdout, Bytes::from_static(b"ghi")).unwrap();
    let restored = ExecJournal::open(&path).unwrap().restored().unwrap();
    assert_eq!((restored.kept.stdout, restored.written.stdout), (3, 9));
}

#[test]
fn time_runs_only_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let journal = ExecJournal::create(dir.path().join("exec"), ABOUT).unwrap();
    assert_eq!(journal.time_left(), None);
    journal.set_clock(Duration::from_secs(500), true).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let left = journal.time_left().unwrap();
    assert!(left < Duration::from_millis(499_990) && left > Duration::from_secs(400), "{left:?}");
}

#[test]
fn who_sets_the_wall_clock_takes_no_time_from_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let journal = ExecJournal::create(dir.path().join("exec"), ABOUT).unwrap();
    let left = Duration::from_secs(500);
    journal.set_clock(left, true).unwrap();
    let noted = journal.content().clock.unwrap().at;
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    assert!((noted.as_secs_f64() - uptime).abs() < 60.0, "{noted:?} is not since the start of the machine");
    // One of an earlier version, by a wall clock that was set forward by an hour since.
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let at = wall - Duration::from_secs(3600);
    journal.content().put(&Record::Clock(Clock { left, runs: true, at })).unwrap();
    assert_eq!(journal.time_left(), Some(left));
}

#[tokio::test]
async fn what_is_left_of_a_program_that_ended_survives_its_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let journal = ExecJournal::create(dir.path().join("exec"), ABOUT).unwrap();
    journal.append(0, &ExecEvent::Started).unwrap();
    let text = "x".repeat(256 << 10);
    for number in 1..=12 {
        journal.append(number, &output(Stream::Stdout, (number - 1) * (256 << 10), &text)).unwrap();
    }
    journal.set_clock(Duration::from_secs(9), true).unwrap();
    journal.append(13, &ExecEvent::Exited(end())).unwrap();
    let before = journal.length();
    journal.forget(12).unwrap();
    assert!(journal.length() < before / 2, "{}", journal.length());
    let left = all(&journal, 12);
    assert_eq!(left.len(), 2);
    assert_eq!(left[1], ExecEvent::Exited(end()));
    let found = ExecJournal::open(&dir.path().join("exec")).unwrap();
    assert_eq!(all(&found, 12), left);
    assert!(found.restored().unwrap().ended && found.time_left().is_some());
}

#[test]
fn a_journal_that_finds_no_room_to_be_shorter_is_only_too_long() {
    for full in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
        assert!(unless_full(Err(full.into())).is_ok(), "{full}");
    }
    assert!(unless_full(Err(io::ErrorKind::PermissionDenied.into())).is_err());
}
