use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

fn open(folder: &Path, most: u64) -> Arc<Snapshots> {
    Snapshots::open(SnapshotConfig { folder: folder.join("snapshots"), most: ByteSize::bytes(most) }).unwrap()
}

/// Pieces as an agent would send them, and the end that keeps them coming.
fn sent(pieces: &[&'static [u8]]) -> (mpsc::Sender<Result<Bytes>>, Files) {
    let (sender, coming) = mpsc::channel(16);
    for piece in pieces {
        sender.try_send(Ok(Bytes::from_static(piece))).unwrap();
    }
    (sender, Files::kept(coming))
}

async fn write(snapshots: &Arc<Snapshots>, id: SnapshotId, pieces: &[&'static [u8]]) -> Result<u64> {
    let (sender, mut files) = sent(pieces);
    drop(sender);
    snapshots.write(id, &mut files, 1 << 20, || Error::new(ErrorKind::Quota, "too much")).await
}

async fn read(snapshots: &Snapshots, id: SnapshotId) -> Result<Vec<u8>> {
    let mut files = snapshots.read(id).await?;
    let mut all = Vec::new();
    while let Some(bytes) = files.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("snapshots")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn what_was_written_is_read_by_the_next_server_too() {
    let folder = tempfile::tempdir().unwrap();
    let id = SnapshotId::random();
    let size = write(&open(folder.path(), 1000), id, &[b"one", b"two"]).await.unwrap();
    // Each piece and the end have a head.
    assert_eq!(size, HEADER.len() as u64 + 6 + 3 * 36);
    let snapshots = open(folder.path(), 1000);
    assert_eq!(read(&snapshots, id).await.unwrap(), b"onetwo");
    assert_eq!(write(&snapshots, id, &[b"x"]).await.unwrap_err().kind(), ErrorKind::Conflict);
    let path = snapshots.path(id, WHOLE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    snapshots.delete(id).await.unwrap();
    snapshots.delete(id).await.unwrap();
    assert_eq!(read(&snapshots, id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(snapshots.used.load(Ordering::Acquire), 0);
}

#[tokio::test]
async fn what_was_never_finished_is_no_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (half, cut) = (SnapshotId::random(), SnapshotId::random());
    let snapshots = open(folder.path(), 1000);
    // As a server leaves it that is killed while it writes.
    fs::write(snapshots.path(half, PARTIAL), "sandstorm snapshot 2\nhalf").unwrap();
    fs::write(snapshots.path(cut, WHOLE), "sandst").unwrap();
    let snapshots = open(folder.path(), 1000);
    assert_eq!(read(&snapshots, half).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(read(&snapshots, cut).await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(names(folder.path()), [format!("{}.files", cut.bare())]);
}

#[tokio::test]
async fn one_that_is_given_up_leaves_nothing_and_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = open(folder.path(), 1000);
    let id = SnapshotId::random();
    let (sender, mut files) = sent(&[b"some"]);
    let past = || Error::new(ErrorKind::Quota, "too much");
    let writing = snapshots.write(id, &mut files, 1 << 20, past);
    let given_up = tokio::time::timeout(std::time::Duration::from_millis(50), writing).await;
    assert!(given_up.is_err());
    snapshots.delete(id).await.unwrap();
    assert!(names(folder.path()).is_empty());
    assert_eq!(snapshots.used.load(Ordering::Acquire), 0);
    drop(sender);
    write(&snapshots, id, &[b"again"]).await.unwrap();
}

#[tokio::test]
async fn room_is_bounded_for_one_and_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = open(folder.path(), 200);
    let (first, second) = (SnapshotId::random(), SnapshotId::random());
    write(&snapshots, first, &[&[1; 50]]).await.unwrap();
    assert_eq!(write(&snapshots, second, &[&[2; 50]]).await.unwrap_err().kind(), ErrorKind::Capacity);
    snapshots.delete(first).await.unwrap();
    write(&snapshots, second, &[&[2; 50]]).await.unwrap();
    let (sender, mut files) = sent(&[&[3; 50]]);
    drop(sender);
    let past = || Error::new(ErrorKind::Quota, "too much");
    let error = snapshots.write(first, &mut files, 49, past).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quota);
    snapshots.writing.settled(&first).await;
    assert_eq!(names(folder.path()).len(), 1);
}

/// A byte anywhere in the file, the end of it, another snapshot's file: nothing that was not saved is passed on.
#[tokio::test]
async fn what_is_not_what_was_saved_is_never_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let snapshots = open(folder.path(), 1 << 20);
    let (id, other) = (SnapshotId::random(), SnapshotId::random());
    let saved: [&'static [u8]; 3] = [b"first piece", b"second", b"third and last"];
    write(&snapshots, id, &saved).await.unwrap();
    write(&snapshots, other, &[b"another's"]).await.unwrap();
    let whole = saved.concat();
    let path = snapshots.path(id, WHOLE);
    let good = fs::read(&path).unwrap();
    let flipped = |at: usize, bits: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= bits;
        (format!("byte {at} by {bits:#x}"), bytes)
    };
    let every_bit = (0..good.len()).flat_map(|at| (0..8).map(move |bit| (at, 1_u8 << bit)));
    // No other number of a form turns the check off.
    let every_number = (1..=u8::MAX).map(|bits| (HEADER.len() - 2, bits));
    let mut wrong: Vec<(String, Vec<u8>)> =
        every_bit.chain(every_number).map(|(at, bits)| flipped(at, bits)).collect();
    wrong.extend((0..good.len()).map(|length| (format!("cut to {length}"), good[..length].to_vec())));
    wrong.push(("longer".to_owned(), [&good[..], &[0]].concat()));
    wrong.push(("another's".to_owned(), fs::read(snapshots.path(other, WHOLE)).unwrap()));
    for (what, bytes) in wrong {
        fs::write(&path, bytes).unwrap();
        let mut passed_on = Vec::new();
        let failed = match snapshots.read(id).await {
            Err(error) => Some(error),
            Ok(mut files) => loop {
                match files.next().await {
                    Ok(Some(bytes)) => passed_on.extend_from_slice(&bytes),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            },
        };
        let failed = failed.unwrap_or_else(|| panic!("{what} was not noticed"));
        assert_eq!(failed.kind(), ErrorKind::Internal, "{what}");
        assert!(whole.starts_with(&passed_on), "{what}");
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(read(&snapshots, id).await.unwrap(), whole);
    fs::write(&path, [&WITHOUT_HASHES[..], b"as it was"].concat()).unwrap();
    let refused = read(&snapshots, id).await.unwrap_err().to_string();
    assert!(refused.contains("earlier version") && refused.contains("save the sandbox anew"), "{refused}");
}
