//! What is collected comes out again as it was.

use super::*;

fn pattern(length: usize) -> String {
    "plain \u{20ac} \"quoted\" \\ \n\u{1}".chars().cycle().take(length).collect()
}

async fn collect(spools: Spools, stdout: &[u8]) -> Collected {
    let mut collector = Collector::new(spools);
    for piece in stdout.chunks(65_537) {
        collector.add(Stream::Stdout, piece, &CancellationToken::new()).await;
    }
    collector.add(Stream::Stderr, b"few", &CancellationToken::new()).await;
    collector.finish(PerStream::default())
}

fn told(saved: Saved) -> Vec<u8> {
    let mut told = vec![b'"'];
    for piece in saved.json_pieces() {
        let piece = piece.unwrap();
        assert!(piece.len() <= 6 * (48 << 10) + 32, "{}", piece.len());
        told.extend_from_slice(&piece);
    }
    told.push(b'"');
    told
}

#[tokio::test]
async fn little_stays_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let collected = collect(Spools::in_dir(dir.path().to_owned()), &[7; HEAD]).await;
    assert!(collected.whole.is_none() && !collected.cut.stdout);
    assert_eq!((collected.stdout.len(), collected.stderr.as_slice()), (HEAD, b"few".as_slice()));
}

#[tokio::test]
async fn much_comes_out_of_a_file_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let text = pattern(3 << 20);
    let collected = collect(Spools::in_dir(dir.path().to_owned()), text.as_bytes()).await;
    assert!(collected.cut.stdout && !collected.cut.stderr);
    assert!(collected.stdout.len() <= HEAD && text.as_bytes().starts_with(&collected.stdout));
    assert!(String::from_utf8(collected.stdout).is_ok(), "no character is cut through");
    let whole = collected.whole.unwrap();
    assert_eq!(whole.stdout.read().unwrap(), text.as_bytes());
    assert_eq!(whole.stderr.read().unwrap(), b"few");
    assert!(whole.stdout.is_text());
    assert_eq!(serde_json::from_slice::<String>(&told(whole.stdout)).unwrap(), text);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
}

#[tokio::test]
async fn what_is_no_text_comes_in_base64() {
    let dir = tempfile::tempdir().unwrap();
    // A character that never comes to its end.
    let mut bytes = pattern(1 << 20).into_bytes();
    bytes.push(0xe2);
    let collected = collect(Spools::in_dir(dir.path().to_owned()), &bytes).await;
    let whole = collected.whole.unwrap();
    assert!(!whole.stdout.is_text());
    let told: String = serde_json::from_slice(&told(whole.stdout)).unwrap();
    assert_eq!(data_encoding::BASE64.decode(told.as_bytes()).unwrap(), bytes);
}

#[tokio::test]
async fn of_what_others_hear_only_the_beginning_is_kept() {
    let collected = collect(Spools::Heads(ByteSize::mib(1)), &[b'x'; HEAD + 1]).await;
    assert!(collected.whole.is_none() && collected.cut.stdout);
    assert_eq!(collected.stdout.len(), HEAD);
    // The limit of a run is one of both streams.
    let short = collect(Spools::Heads(ByteSize::bytes(12)), &[b'x'; 10]).await;
    assert_eq!((short.stdout.len(), short.stderr.as_slice()), (10, b"fe".as_slice()));
    assert!(!short.cut.stdout && short.cut.stderr);
    let all = collect(Spools::Memory, &[b'x'; HEAD + 1]).await;
    assert!(all.whole.is_none() && !all.cut.stdout && all.stdout.len() == HEAD + 1);
}

#[test]
fn files_are_where_output_is() {
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir().unwrap();
    let file = Spools::in_dir(dir.path().to_owned()).file().unwrap();
    let place = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert!(place.starts_with(dir.path().canonicalize().unwrap()), "{}", place.display());
    Spools::Memory.file().unwrap();
}

#[tokio::test]
async fn what_cannot_be_kept_is_said() {
    let mut collector = Collector::new(Spools::in_dir("/nonexistent/place".into()));
    collector.add(Stream::Stdout, &[b'x'; HEAD + 1], &CancellationToken::new()).await;
    collector.add(Stream::Stdout, b"more", &CancellationToken::new()).await;
    let collected = collector.finish(PerStream::default());
    assert!(collected.whole.is_none() && collected.cut.stdout && !collected.cut.stderr);
}
