//! What listeners hear, and when.

use std::time::Duration;

use sandstorm_types::LimitSet;

use super::*;
use crate::{EndCause, ExecStatus, Usage};

fn end() -> ExecEnd {
    ExecEnd {
        status: ExecStatus::Code(0),
        cause: EndCause::Program,
        limits_hit: LimitSet::EMPTY,
        denied: Vec::new(),
        written: PerStream::default(),
        truncated: PerStream::default(),
        usage: Usage::default(),
    }
}

#[tokio::test]
async fn keeps_up_to_the_limit_and_counts_the_rest() {
    let log = ExecLog::new(Keep::UpTo(ByteSize::bytes(5)));
    log.write(Stream::Stdout, Bytes::from_static(b"abc")).unwrap();
    log.write(Stream::Stderr, Bytes::from_static(b"defg")).unwrap();
    log.write(Stream::Stdout, Bytes::from_static(b"h")).unwrap();
    assert!(!log.flooded().is_cancelled());
    log.write(Stream::Stdout, Bytes::from_static(&[0; 40])).unwrap();
    assert!(log.flooded().is_cancelled());
    log.end(end()).unwrap();
    let events: Vec<_> = log.events(AttachFrom::START).1.map(Result::unwrap).collect().await;
    assert_eq!(events.len(), 4);
    assert_eq!(
        events[2],
        ExecEvent::Output { stream: Stream::Stderr, offset: 0, bytes: Bytes::from_static(b"de") }
    );
    let ExecEvent::Exited(end) = &events[3] else { panic!("{events:?}") };
    assert_eq!(end.written, PerStream { stdout: 44, stderr: 4 });
    assert_eq!(end.truncated, PerStream { stdout: true, stderr: true });
}

#[tokio::test]
async fn listeners_start_where_they_say() {
    let log = ExecLog::new(Keep::UpTo(ByteSize::bytes(100)));
    log.write(Stream::Stdout, Bytes::from_static(b"abc")).unwrap();
    log.write(Stream::Stdout, Bytes::from_static(b"def")).unwrap();
    log.end(end()).unwrap();
    let from = PerStream { stdout: 4, stderr: 0 };
    let events: Vec<_> = log.events(AttachFrom::Offset(from)).1.map(Result::unwrap).collect().await;
    assert_eq!(
        events[1],
        ExecEvent::Output { stream: Stream::Stdout, offset: 4, bytes: Bytes::from_static(b"ef") }
    );
    assert_eq!(events.len(), 3);
}

#[tokio::test]
async fn a_flowing_log_keeps_nothing_that_was_taken() {
    let log = ExecLog::new(Keep::UntilTaken);
    let mut events = log.paced_events(None);
    for _ in 0..100 {
        log.write(Stream::Stdout, Bytes::from(vec![0; 1000])).unwrap();
        // One guard at a time: two in one expression would wait for each other.
        while !log.content().events.is_empty() {
            events.next().await;
        }
    }
    assert_eq!(log.content().events.len(), 0);
    assert_eq!(log.content().written.stdout, 100_000);
    log.end(end()).unwrap();
    let last: Vec<_> = events.collect().await;
    assert!(matches!(
        last[..],
        [Ok(ExecEvent::Exited(ExecEnd { truncated: PerStream { stdout: false, .. }, .. }))]
    ));
    let asked = log.events(AttachFrom::End).1.next().await;
    assert!(matches!(asked, Some(Ok(ExecEvent::Exited(_)))), "how it ended is for everybody");
}

#[tokio::test]
async fn the_writer_waits_for_the_listener_that_sets_the_pace() {
    let log = ExecLog::new(Keep::UpTo(ByteSize::mib(10)));
    let mut events = log.paced_events(None);
    log.write(Stream::Stdout, Bytes::from(vec![0; LAG as usize + 1])).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), log.pace()).await.is_err(), "it did not wait");
    events.next().await;
    events.next().await;
    log.pace().await;
    log.write(Stream::Stdout, Bytes::from(vec![0; LAG as usize + 1])).unwrap();
    drop(events);
    log.pace().await;
}

/// A journal in memory that can be told to fail.
#[derive(Debug, Default)]
struct Shelf {
    events: Mutex<Vec<ExecEvent>>,
    full: std::sync::atomic::AtomicBool,
    /// Events before this are forgotten.
    base: std::sync::atomic::AtomicU64,
}

impl Journal for Arc<Shelf> {
    fn append(&self, number: u64, event: &ExecEvent) -> io::Result<()> {
        if self.full.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut events = self.events.lock().unwrap();
        assert_eq!(number, events.len() as u64);
        events.push(event.clone());
        Ok(())
    }

    fn count(&self, _: PerStream<u64>) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, from: u64) -> io::Result<Vec<ExecEvent>> {
        Ok(self.events.lock().unwrap().iter().skip(from as usize).take(3).cloned().collect())
    }

    fn forget(&self, before: u64) -> io::Result<()> {
        self.base.store(before, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn unforgotten(&self) -> u64 {
        let base = self.base.load(std::sync::atomic::Ordering::Relaxed);
        self.events.lock().unwrap().iter().skip(base as usize).map(size).sum()
    }
}

fn piece(n: u8) -> Bytes {
    Bytes::from(vec![n; 50_000])
}

#[tokio::test]
async fn a_journaled_log_keeps_little_in_memory_and_loses_nothing() {
    let log =
        ExecLog::journaled(Keep::UpTo(ByteSize::mib(100)), Box::new(Arc::new(Shelf::default()))).unwrap();
    for n in 0..100 {
        log.write(Stream::Stdout, piece(n)).unwrap();
    }
    log.end(end()).unwrap();
    assert!(log.content().memory < 2 * TAIL, "{}", log.content().memory);
    let (first, events) = log.events(AttachFrom::Seq(7));
    assert_eq!(first, 7);
    let events: Vec<_> = events.map(Result::unwrap).collect().await;
    assert_eq!(events.len(), 95);
    for (n, event) in events.iter().enumerate().take(94) {
        let ExecEvent::Output { offset, bytes, .. } = event else { panic!("{event:?}") };
        assert_eq!((*offset, bytes), ((n as u64 + 6) * 50_000, &piece(n as u8 + 6)));
    }
}

/// Whether whoever writes has to wait.
async fn waits(log: &ExecLog) -> bool {
    tokio::time::timeout(Duration::from_millis(20), log.pace()).await.is_err()
}

/// Writes in large steps, and hears all of it, until the log is just full.
async fn fill(log: &ExecLog, events: &mut BoxStream<'static, Result<ExecEvent>>) -> u64 {
    let step = Bytes::from(vec![0; 4 << 20]);
    let steps = MOST_UNFORGOTTEN / step.len() as u64;
    assert!(matches!(events.next().await, Some(Ok(ExecEvent::Started))));
    for _ in 0..steps {
        assert!(!waits(log).await, "there is room, and it waits");
        log.write(Stream::Stdout, step.clone()).unwrap();
        assert!(matches!(events.next().await, Some(Ok(ExecEvent::Output { .. }))));
    }
    steps + 1
}

#[tokio::test]
async fn the_writer_waits_for_what_was_heard_to_be_forgotten() {
    let shelf = Box::new(Arc::new(Shelf::default()));
    for log in [ExecLog::new(Keep::UntilForgotten), ExecLog::journaled(Keep::UntilForgotten, shelf).unwrap()]
    {
        let (_, mut events) = log.events(AttachFrom::START);
        let next = fill(&log, &mut events).await;
        assert!(waits(&log).await, "everything was heard, nothing forgotten, and it goes on");
        // Who comes anew hears it again, and that frees nothing.
        let (_, mut again) = log.events(AttachFrom::START);
        for _ in 0..next {
            again.next().await.unwrap().unwrap();
        }
        assert!(waits(&log).await, "it was heard twice, nothing forgotten, and it goes on");
        {
            let writer = log.pace();
            tokio::pin!(writer);
            assert!(futures_util::poll!(&mut writer).is_pending());
            log.forget(2).unwrap();
            writer.await;
        }
        log.write(Stream::Stdout, piece(1)).unwrap();
        assert!(matches!(again.next().await, Some(Ok(ExecEvent::Output { .. }))));
        assert!(!waits(&log).await, "there is room again, and it waits");
    }
}

#[tokio::test]
async fn a_context_is_bounded_by_who_runs_its_cells() {
    let log = ExecLog::new(Keep::UntilForgotten);
    let (_, mut events) = log.events(AttachFrom::START);
    fill(&log, &mut events).await;
    log.write_channel(piece(1)).unwrap();
    events.next().await.unwrap().unwrap();
    assert!(!waits(&log).await, "a cell that is not done waits for its own end");
}

#[tokio::test]
async fn who_comes_when_nobody_sets_the_pace_sets_it() {
    let log = ExecLog::new(Keep::UntilTaken);
    drop(log.paced_events(None));
    let fill = |n| log.write(Stream::Stdout, Bytes::from(vec![n; LAG as usize + 1])).unwrap();
    fill(0);
    assert!(waits(&log).await, "nobody listens, and it goes on");
    let (first, mut events) = log.events(AttachFrom::START);
    assert_eq!(first, 0);
    assert!(matches!(events.next().await, Some(Ok(ExecEvent::Started))));
    // Another one does not take it over as long as there is one.
    let (_, mut other) = log.events(AttachFrom::Seq(1));
    other.next().await.unwrap().unwrap();
    assert!(waits(&log).await, "who came later set the pace");
    events.next().await.unwrap().unwrap();
    assert!(!waits(&log).await, "all was taken, and it waits");
    // Then it does, also when it sleeps.
    {
        let sleeping = other.next();
        tokio::pin!(sleeping);
        assert!(futures_util::poll!(&mut sleeping).is_pending());
        drop(events);
        assert!(futures_util::poll!(&mut sleeping).is_pending());
        fill(1);
        assert!(matches!(sleeping.await, Some(Ok(ExecEvent::Output { .. }))));
    }
    assert!(!waits(&log).await, "who is left took all, and it waits");
    assert_eq!(log.content().events.len(), 0);
    drop(other);
}

#[tokio::test]
async fn who_is_behind_what_was_forgotten_hears_that() {
    let log = ExecLog::new(Keep::UntilForgotten);
    for n in 0..4 {
        log.write(Stream::Stdout, piece(n)).unwrap();
    }
    let (_, mut slow) = log.events(AttachFrom::START);
    let (_, mut quick) = log.events(AttachFrom::Seq(2));
    slow.next().await.unwrap().unwrap();
    quick.next().await.unwrap().unwrap();
    log.forget(3).unwrap();
    let error = slow.next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(slow.next().await.is_none());
    let heard = quick.next().await.unwrap().unwrap();
    assert!(matches!(heard, ExecEvent::Output { offset: 100_000, .. }), "{heard:?}");
}

#[tokio::test]
async fn what_is_kept_until_forgotten_waits_for_its_listener() {
    let log = ExecLog::new(Keep::UntilForgotten);
    for n in 0..6 {
        log.write(Stream::Stdout, piece(n)).unwrap();
    }
    assert!(waits(&log).await, "nobody listens, and it goes on");
    let (_, mut events) = log.events(AttachFrom::Seq(1));
    for _ in 0..3 {
        events.next().await;
    }
    assert!(!waits(&log).await, "there is room, and it waits");
    // The next listener takes over where the last one was: what was heard is still there, and nothing is owed twice.
    drop(events);
    log.write_channel(piece(9)).unwrap();
    log.write_channel(piece(9)).unwrap();
    log.write_channel(piece(9)).unwrap();
    assert!(waits(&log).await);
    let (first, events) = log.events(AttachFrom::Seq(2));
    assert_eq!(first, 2);
    let heard: Vec<_> = events.take(8).collect().await;
    assert!(matches!(heard[7], Ok(ExecEvent::Channel { offset: 100_000, .. })), "{:?}", heard.len());
    assert!(!waits(&log).await);
    log.forget(9).unwrap();
    assert_eq!(log.events(AttachFrom::START).0, 9);
    assert_eq!(log.content().events.len(), 1);
}

#[tokio::test]
async fn who_waits_for_the_end_sets_no_pace() {
    let log = ExecLog::new(Keep::UntilForgotten);
    let (_, mut own) = log.events(AttachFrom::START);
    own.next().await;
    let (_, end_alone) = log.events(AttachFrom::End);
    for n in 0..6 {
        log.write(Stream::Stdout, piece(n)).unwrap();
    }
    assert!(waits(&log).await, "the pace is that of who hears everything");
    log.end(end()).unwrap();
    let heard: Vec<_> = end_alone.collect().await;
    assert!(matches!(&heard[..], [Ok(ExecEvent::Exited(_))]), "{heard:?}");
    let broken = ExecLog::new(Keep::UntilForgotten);
    broken.fail("gone");
    assert!(broken.events(AttachFrom::End).1.next().await.unwrap().is_err());
    // One that an earlier process kept.
    let shelf = Arc::new(Shelf::default());
    let first = ExecLog::journaled(Keep::UntilForgotten, Box::new(Arc::clone(&shelf))).unwrap();
    first.end(end()).unwrap();
    let from = Restored { next: 2, ended: true, ..Restored::default() };
    let restored = ExecLog::restored(Keep::UntilForgotten, Box::new(shelf), from);
    let heard: Vec<_> = restored.events(AttachFrom::End).1.collect().await;
    assert!(matches!(&heard[..], [Ok(ExecEvent::Exited(_))]), "{heard:?}");
}

#[tokio::test]
async fn what_could_not_be_kept_is_not_heard() {
    let shelf = Arc::new(Shelf::default());
    let log = ExecLog::journaled(Keep::UpTo(ByteSize::mib(1)), Box::new(Arc::clone(&shelf))).unwrap();
    log.write(Stream::Stdout, Bytes::from_static(b"kept")).unwrap();
    shelf.full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(log.write(Stream::Stdout, Bytes::from_static(b"lost")).is_err());
    log.fail("the journal is full");
    let events: Vec<_> = log.events(AttachFrom::START).1.collect().await;
    assert!(matches!(&events[..], [Ok(ExecEvent::Started), Ok(_), Err(_)]), "{events:?}");
}

#[tokio::test]
async fn what_was_missed_is_told_in_the_end() {
    let log = ExecLog::new(Keep::UpTo(ByteSize::mib(1)));
    log.write(Stream::Stdout, Bytes::from_static(b"heard")).unwrap();
    log.miss();
    log.end(end()).unwrap();
    let events: Vec<_> = log.events(AttachFrom::START).1.collect().await;
    let Some(Ok(ExecEvent::Exited(end))) = events.last() else { panic!("{events:?}") };
    assert_eq!((end.truncated, end.written.stdout), (PerStream { stdout: true, stderr: true }, 5));
}

/// A journal in memory, which can be full.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<(Vec<ExecEvent>, bool)>>);

impl Kept {
    fn fill(&self, full: bool) {
        self.0.lock().unwrap().1 = full;
    }
}

impl Journal for Kept {
    fn append(&self, number: u64, event: &ExecEvent) -> io::Result<()> {
        let mut kept = self.0.lock().unwrap();
        assert_eq!(number, kept.0.len() as u64);
        if kept.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        kept.0.push(event.clone());
        Ok(())
    }

    fn count(&self, _: PerStream<u64>) -> io::Result<()> {
        if self.0.lock().unwrap().1 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read(&self, from: u64) -> io::Result<Vec<ExecEvent>> {
        Ok(self.0.lock().unwrap().0[usize::try_from(from).unwrap()..].to_vec())
    }

    fn forget(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn unforgotten(&self) -> u64 {
        0
    }
}

#[tokio::test]
async fn what_could_not_be_kept_is_written_again_as_if_for_the_first_time() {
    let journal = Kept::default();
    let keep = Keep::UpTo(ByteSize::bytes(5));
    let log = ExecLog::journaled(keep, Box::new(journal.clone())).unwrap();
    for text in ["abc", "defg"] {
        journal.fill(true);
        assert!(log.write(Stream::Stdout, Bytes::from_static(text.as_bytes())).is_err());
        assert!(log.write(Stream::Stdout, Bytes::from_static(text.as_bytes())).is_err());
        journal.fill(false);
        log.write(Stream::Stdout, Bytes::from_static(text.as_bytes())).unwrap();
    }
    journal.fill(true);
    assert!(log.write_channel(Bytes::from_static(b"side")).is_err());
    assert!(log.end(end()).is_err() && !log.has_ended());
    journal.fill(false);
    log.write_channel(Bytes::from_static(b"side")).unwrap();
    log.end(end()).unwrap();
    let events: Vec<_> = log.events(AttachFrom::START).1.map(Result::unwrap).collect().await;
    let output = |offset, text: &'static str| ExecEvent::Output {
        stream: Stream::Stdout,
        offset,
        bytes: Bytes::from_static(text.as_bytes()),
    };
    assert_eq!(events[1..3], [output(0, "abc"), output(3, "de")]);
    assert_eq!(events[3], ExecEvent::Channel { offset: 0, bytes: Bytes::from_static(b"side") });
    let ExecEvent::Exited(end) = &events[4] else { panic!("{events:?}") };
    assert_eq!(end.written.stdout, 7);
}

#[tokio::test]
async fn programs_that_ended_share_what_memory_there_is() {
    let tails = Tails::new(10_000);
    let logs: Vec<_> = (0..50)
        .map(|_| {
            let keep = Keep::UpTo(ByteSize::mib(1));
            let log = ExecLog::journaled(keep, Box::new(Kept::default())).unwrap();
            log.write(Stream::Stdout, Bytes::from(vec![7; 1000])).unwrap();
            log.end(end()).unwrap();
            tails.keep(&log);
            log
        })
        .collect();
    let in_memory = || logs.iter().map(|log| log.content().memory).sum::<u64>();
    assert!((1000..10_000).contains(&in_memory()), "{}", in_memory());
    assert!(logs[49].content().memory > 1000, "the latest are there");
    for log in &logs {
        let events: Vec<_> = log.events(AttachFrom::START).1.map(Result::unwrap).collect().await;
        assert!(matches!(&events[1], ExecEvent::Output { bytes, .. } if bytes.len() == 1000));
        assert!(matches!(events[2], ExecEvent::Exited(_)));
        assert!(matches!(log.events(AttachFrom::End).1.next().await, Some(Ok(ExecEvent::Exited(_)))));
    }
}

#[tokio::test]
async fn what_is_only_passed_on_has_its_limit_too() {
    let log = ExecLog::new(Keep::UpToUntilTaken(ByteSize::bytes(150)));
    let mut events = log.paced_events(None);
    for _ in 0..2 {
        log.write(Stream::Stdout, Bytes::from(vec![7; 100])).unwrap();
    }
    for _ in 0..3 {
        events.next().await.unwrap().unwrap();
    }
    assert_eq!(log.content().events.len(), 0, "nothing of it stays");
    log.end(end()).unwrap();
    let Some(Ok(ExecEvent::Exited(end))) = events.next().await else { panic!("it has an end") };
    assert_eq!((end.written.stdout, end.truncated.stdout), (200, true));
    log.write(Stream::Stdout, Bytes::from(vec![7; 2000])).unwrap();
    let flooding = ExecLog::new(Keep::UpToUntilTaken(ByteSize::bytes(10)));
    flooding.write(Stream::Stdout, Bytes::from(vec![7; 81])).unwrap();
    assert!(flooding.flooded().is_cancelled());
}

#[tokio::test]
async fn whoever_a_program_runs_for_hears_what_is_past_the_limit_too() {
    let log = ExecLog::new(Keep::UpTo(ByteSize::bytes(5)));
    log.pass_on_beyond();
    let own = log.paced_events(None);
    log.write(Stream::Stdout, Bytes::from_static(b"abc")).unwrap();
    log.write(Stream::Stderr, Bytes::from_static(b"defg")).unwrap();
    log.write(Stream::Stdout, Bytes::from(vec![7; 100])).unwrap();
    assert!(!log.flooded().is_cancelled(), "somebody takes it");
    log.end(end()).unwrap();
    let said = |events: Vec<ExecEvent>| -> Vec<(Stream, u64, usize)> {
        assert!(matches!(events.first(), Some(ExecEvent::Started)));
        let Some(ExecEvent::Exited(end)) = events.last() else { panic!("{events:?}") };
        assert_eq!(end.written, PerStream { stdout: 103, stderr: 4 });
        assert_eq!(end.truncated, PerStream { stdout: true, stderr: true });
        let output = |event: &ExecEvent| match event {
            ExecEvent::Output { stream, offset, bytes } => Some((*stream, *offset, bytes.len())),
            _ => None,
        };
        events.iter().filter_map(output).collect()
    };
    let kept = [(Stream::Stdout, 0, 3), (Stream::Stderr, 0, 2)];
    let heard = said(own.map(Result::unwrap).collect().await);
    assert_eq!(heard, [&kept[..], &[(Stream::Stderr, 2, 2), (Stream::Stdout, 3, 100)]].concat());
    let others = log.events(AttachFrom::START).1;
    assert_eq!(said(others.map(Result::unwrap).collect().await), kept);
}

#[tokio::test]
async fn what_is_past_the_limit_waits_for_its_listener_and_goes_with_it() {
    let log = ExecLog::new(Keep::UpTo(ByteSize::kib(1)));
    log.pass_on_beyond();
    let mut own = log.paced_events(None);
    for _ in 0..5 {
        log.write(Stream::Stdout, Bytes::from(vec![7; 64 << 10])).unwrap();
    }
    let paced = |log: &ExecLog| futures_util::FutureExt::now_or_never(log.pace()).is_some();
    assert!(!paced(&log), "the listener is behind");
    for _ in 0..4 {
        own.next().await.unwrap().unwrap();
    }
    assert!(paced(&log));
    assert!(!log.flooded().is_cancelled());
    drop(own);
    assert_eq!(log.content().lag, 0, "what nobody will take is gone");
    log.write(Stream::Stdout, Bytes::from_static(b"x")).unwrap();
    assert!(log.flooded().is_cancelled(), "nobody takes it any more");
}
