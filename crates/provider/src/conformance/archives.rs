//! Folders as tar archives, and archives that must not get their way.

use bytes::Bytes;
use sandstorm_types::{ErrorKind, SandboxId};

use super::trial::{Failure, Trial, Verdict, ensure, fails, path, same, same_bytes};
use super::{Case, case};
use crate::{ByteStream, FileOp, FileReply};

pub(super) const CASES: &[Case] = &[
    case!("archives", packed_is_unpacked_the_same, needs [files, files_archive]),
    case!("archives", an_archive_of_others_is_read, needs [files, files_archive]),
    case!("archives", hostile_entries_are_refused, needs [files, files_archive]),
    case!("archives", broken_archives_are_refused, needs [files, files_archive]),
];

async fn unpack(t: &Trial<'_>, id: &SandboxId, to: &str, archive: Bytes) -> crate::Result<FileReply> {
    t.files(id, FileOp::Unpack { path: path(to), archive: ByteStream::from(archive) }).await
}

/// One entry and the end of an archive. Written by hand: libraries refuse to write what is tried here.
fn entry(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = header.to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

fn archive(entries: &[Vec<u8>]) -> Bytes {
    [entries.concat(), vec![0; 1024]].concat().into()
}

async fn packed_is_unpacked_the_same(t: &Trial<'_>) -> Verdict {
    let (from, to) = (t.sandbox().await?, t.sandbox().await?);
    let long = format!("build/{}/{}", "d".repeat(120), "f".repeat(120));
    for (at, content) in [("build/a", "1"), ("build/sub/b", "\0\u{ff}"), (&long, "long"), ("elsewhere", "no")]
    {
        t.write(&from, at, content.to_owned()).await?;
    }
    t.files(&from, FileOp::MakeDir { path: path("build/empty") }).await?;
    t.files(&from, FileOp::SetMode { path: path("build/a"), mode: 0o755 }).await?;
    let FileReply::Archive(stream) = t.files(&from, FileOp::Pack { path: path("build") }).await? else {
        return Err(Failure::Failed("pack answers something else".to_owned()));
    };
    let packed = stream.collect(64 << 20).await?;
    unpack(t, &to, "/tmp/build", packed).await?;
    let under = |at: &str| at.replace("build/", "/tmp/build/");
    for (at, content) in [("build/a", "1"), ("build/sub/b", "\0\u{ff}"), (&long, "long")] {
        same_bytes("the content", t.read(&to, &under(at)).await?, content.as_bytes())?;
    }
    let FileReply::Info(info) = t.files(&to, FileOp::Stat { path: path("/tmp/build/a") }).await? else {
        return Err(Failure::Failed("stat answers something else".to_owned()));
    };
    same("the mode", info.mode & 0o777, 0o755)?;
    t.files(&to, FileOp::Stat { path: path("/tmp/build/empty") }).await?;
    fails("reading what was not packed", t.read(&to, "/tmp/build/elsewhere").await, ErrorKind::NotFound)
}

async fn an_archive_of_others_is_read(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let good = archive(&[
        entry("./", b'5', "", b""),
        entry("./a/b.txt", b'0', "", b"hello"),
        entry("c", 0, "", b""),
    ]);
    unpack(t, &id, "in", good).await?;
    same_bytes("the content", t.read(&id, "in/a/b.txt").await?, b"hello")?;
    same_bytes("the content", t.read(&id, "in/c").await?, b"")
}

async fn hostile_entries_are_refused(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "victim", "safe").await?;
    let through_link = [entry("way", b'2', "..", b""), entry("way/victim", b'0', "", b"bad")];
    for (what, entries) in [
        ("a name that goes up", vec![entry("../victim", b'0', "", b"bad")]),
        ("a name that goes down and up", vec![entry("a/../../victim", b'0', "", b"bad")]),
        ("an absolute name", vec![entry("/workspace/victim", b'0', "", b"bad")]),
        ("a link out and a file through it", through_link.to_vec()),
        (
            "an absolute link",
            vec![entry("way", b'2', "/workspace", b""), entry("way/victim", b'0', "", b"bad")],
        ),
        ("a hard link to what it did not bring", vec![entry("way", b'1', "../victim", b"")]),
        ("a device", vec![entry("null", b'3', "", b"")]),
        ("a pipe", vec![entry("pipe", b'6', "", b"")]),
    ] {
        let result = unpack(t, &id, "in", archive(&entries)).await;
        ensure!(result.is_err(), "{what} is unpacked");
        same_bytes(what, t.read(&id, "victim").await?, b"safe")?;
    }
    Ok(())
}

async fn broken_archives_are_refused(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let good = entry("a", b'0', "", &[7; 2000]);
    let mut wrong_sum = good.clone();
    wrong_sum[0] = b'b';
    for (what, bytes) in [
        ("an archive that breaks off", Bytes::from(good[..1500].to_vec())),
        ("a wrong checksum", archive(&[wrong_sum])),
        ("noise", Bytes::from(vec![0xa5; 2048])),
    ] {
        ensure!(unpack(t, &id, "in", bytes).await.is_err(), "{what} is unpacked");
    }
    same("the sandbox afterwards", t.write(&id, "fine", "").await.is_ok(), true)
}
