//! A cell's log: what is kept, what only its client hears, and what each of them is told.

use std::time::Duration;

use sandstorm_provider::ProviderInfo;
use sandstorm_types::{Metrics, Status, Walls};

use super::super::ended::empty;
use super::*;

fn log(limit: u64, spools: Spools) -> Arc<CellLog> {
    let log = CellLog::new(ExecId::from_bits(1), limit, spools);
    log.start(ExecId::from_bits(1));
    log
}

fn end(log: &CellLog) {
    let info = ProviderInfo { name: "memory".into(), kind: "memory".into(), region: None };
    let mut result = empty(ExecId::from_bits(1), Status::Ok, &info, Walls::default());
    result.metrics = Metrics::default();
    let (last, _) = log.with_end(&Ended::new(result, None));
    log.close(last);
}

/// All that a listener hears, and what the end says is missing.
async fn heard(mut reader: Reader) -> (Vec<u8>, Vec<u64>, PerStream<bool>) {
    let (mut bytes, mut numbers, mut missed) = (Vec::new(), Vec::new(), None);
    while let Some(event) = reader.next().await {
        numbers.push(event.seq);
        match event.body {
            EventBody::Stdout(chunk) => bytes.extend_from_slice(chunk.data.as_bytes()),
            EventBody::End(end) => missed = Some(end.truncated),
            _ => {}
        }
    }
    (bytes, numbers, missed.expect("it has an end"))
}

fn piece(number: usize) -> Vec<u8> {
    format!("{number}:{}\n", "x".repeat(1000)).into_bytes()
}

#[tokio::test]
async fn much_lies_in_a_file_and_reads_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(u64::MAX, Spools::in_dir(dir.path().to_owned()));
    let mut early = Reader::new(Arc::clone(&log));
    let mut expected = Vec::new();
    let mut began = Vec::new();
    for number in 0..5000 {
        let piece = piece(number);
        log.output(Stream::Stdout, &piece);
        expected.extend_from_slice(&piece);
        // One that reads beside it finds each event where it is by then.
        if number % 7 == 0 {
            began.push(early.next().await.unwrap());
        }
        let content = log.content();
        assert!(content.tail_bytes <= BLOCK, "{} bytes are in memory", content.tail_bytes);
        assert!(content.tail.len() * EVENT <= BLOCK);
    }
    end(&log);
    assert!(log.size().1 > 5_000_000, "{:?}", log.size());
    assert!(log.few(&[]).is_none(), "that is too much to be stored");
    let (bytes, numbers, missed) = heard(Reader::new(Arc::clone(&log))).await;
    assert!(bytes == expected);
    assert!(numbers.iter().copied().eq(0..5002));
    assert!(!missed.stdout && !missed.stderr);
    while let Some(event) = early.next().await {
        began.push(event);
    }
    assert!(began.iter().map(|event| event.seq).eq(0..5002));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
}

#[tokio::test]
async fn many_small_pieces_are_bounded_too() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(u64::MAX, Spools::in_dir(dir.path().to_owned()));
    for _ in 0..100_000 {
        log.output(Stream::Stdout, b"x");
    }
    assert!(log.content().tail.len() <= BLOCK / EVENT);
    end(&log);
    assert_eq!(heard(Reader::new(log)).await.0.len(), 100_000);
}

#[tokio::test]
async fn its_client_hears_what_goes_past_the_limit_and_others_are_told_that_they_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(100_000, Spools::in_dir(dir.path().to_owned()));
    log.attend();
    let client = heard(Reader::of_client(Arc::clone(&log)));
    let writing = async {
        let mut expected = Vec::new();
        for number in 0..3000 {
            let piece = piece(number);
            log.result(RichResult::default());
            assert!(log.output(Stream::Stdout, &piece), "it counts as heard");
            expected.extend_from_slice(&piece);
            tokio::time::timeout(Duration::from_secs(60), log.room()).await.expect("the client reads");
        }
        end(&log);
        expected
    };
    let ((bytes, numbers, missed), expected) = tokio::join!(client, writing);
    assert!(bytes == expected);
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "in their order, without a gap");
    assert!(!missed.stdout && !missed.stderr);
    let (bytes, numbers, missed) = heard(Reader::new(log)).await;
    assert!(bytes == expected[..100_000] && missed.stdout && !missed.stderr);
    assert!(numbers.is_sorted_by(|one, next| one < next));
}

#[tokio::test]
async fn a_cell_waits_for_its_client_until_that_goes_away_or_it_was_interrupted() {
    let waits =
        async |log: &CellLog| tokio::time::timeout(Duration::from_millis(50), log.room()).await.is_err();
    let fill = |log: &CellLog| {
        for number in 0..400 {
            log.output(Stream::Stdout, &piece(number));
        }
    };
    let left = log(10, Spools::Memory);
    left.attend();
    let client = Reader::of_client(Arc::clone(&left));
    assert!(!waits(&left).await);
    fill(&left);
    assert!(waits(&left).await, "nothing holds it up");
    drop(client);
    assert!(!waits(&left).await);
    assert!(!left.output(Stream::Stdout, b"more"), "there is no client");

    let late = log(10, Spools::Memory);
    late.attend();
    let client = Reader::of_client(Arc::clone(&late));
    fill(&late);
    assert!(waits(&late).await);
    late.give_up();
    assert!(!waits(&late).await);
    late.output(Stream::Stdout, b"unheard");
    end(&late);
    let (bytes, _, missed) = heard(client).await;
    assert!(bytes.len() > WAITING && !bytes.ends_with(b"unheard"));
    assert!(missed.stdout, "what it missed is said");
}

#[tokio::test]
async fn what_is_little_is_stored_with_its_end() {
    let log = log(100, Spools::Memory);
    log.output(Stream::Stdout, b"few");
    let last = [Event { seq: 2, body: EventBody::Error(ProgramError::default()) }];
    let few = log.few(&last).unwrap();
    assert_eq!(few.iter().map(|event| event.seq).collect::<Vec<_>>(), [0, 1, 2]);
}
