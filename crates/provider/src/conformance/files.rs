//! Files are written, read, found, moved and removed, and programs see the same ones.

use bytes::Bytes;
use futures_util::stream;
use sandstorm_types::{ErrorKind, SandboxId, User};

use super::trial::{Failure, Trial, Verdict, ensure, fails, path, same, same_bytes};
use super::{Case, case};
use crate::{
    ByteStream, Error, ExecRequest, FileInfo, FileKind, FileOp, FileReply, Metadata, ReadRange, WriteOptions,
};

pub(super) const CASES: &[Case] = &[
    case!("files", what_is_written_is_read, needs[files]),
    case!("files", a_part_of_a_file_is_read, needs[files]),
    case!("files", writing_replaces_all, needs[files]),
    case!("files", a_broken_body_changes_nothing, needs[files]),
    case!("files", programs_see_the_same_files, needs [files, exec]),
    case!("files", stat_and_list_tell_what_is_there, needs[files]),
    case!("files", listing_is_bounded, needs[files]),
    case!("files", odd_names_are_names, needs[files]),
    case!("files", moving_and_removing, needs[files]),
    case!("files", modes_are_permissions_only, needs[files]),
    case!("files", the_wrong_kind_is_told, needs[files]),
    case!("files", search_finds_by_name, needs [files, files_search]),
    case!("files", metadata_goes_with_its_file, needs [files, files_metadata]),
    case!("files", root_works_in_its_home_and_in_the_users, needs [files, files_root]),
];

async fn stat(t: &Trial<'_>, id: &SandboxId, at: &str) -> Verdict<FileInfo> {
    match t.files(id, FileOp::Stat { path: path(at) }).await? {
        FileReply::Info(info) => Ok(info),
        other => Err(Failure::Failed(format!("stat answers {other:?}"))),
    }
}

async fn list(
    t: &Trial<'_>,
    id: &SandboxId,
    at: &str,
    depth: u32,
    limit: usize,
) -> Verdict<(Vec<FileInfo>, bool)> {
    match t.files(id, FileOp::List { path: path(at), depth, limit }).await? {
        FileReply::List { entries, more } => Ok((entries, more)),
        other => Err(Failure::Failed(format!("list answers {other:?}"))),
    }
}

fn names(entries: &[FileInfo]) -> Vec<&str> {
    entries.iter().map(|info| info.path.as_str()).collect()
}

async fn what_is_written_is_read(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let large: Bytes = (0..5 << 20).map(|place: u32| (place % 251) as u8).collect();
    for (at, content) in
        [("small", Bytes::from_static(b"\0text\xff\n")), ("empty", Bytes::new()), ("/tmp/a/b/large", large)]
    {
        t.write(&id, at, content.clone()).await?;
        let back = t.read(&id, at).await?;
        ensure!(back == content, "{at} has {} bytes, not the {} written", back.len(), content.len());
    }
    same("a relative path", t.read(&id, "/workspace/small").await?, t.read(&id, "small").await?)?;
    fails("reading what is not there", t.read(&id, "absent").await, ErrorKind::NotFound)
}

async fn a_part_of_a_file_is_read(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let content: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    t.write(&id, "long", content.clone()).await?;
    for (offset, length) in [
        (0, None),
        (1, Some(0)),
        (70_000, Some(100_000)),
        (199_999, None),
        (150_000, Some(u64::MAX)),
        (200_001, None),
    ] {
        let range = ReadRange { offset, length };
        let part = t.provider.read_file(&t.cx, &id, &path("long"), range).await?.collect(1 << 20).await?;
        let start = content.len().min(offset as usize);
        let end = length.map_or(content.len(), |n| content.len().min(start.saturating_add(n as usize)));
        ensure!(part == content[start..end], "{range:?} reads {} bytes and not those", part.len());
    }
    Ok(())
}

async fn writing_replaces_all(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "a", "a long first content").await?;
    t.write(&id, "a", "short").await?;
    same_bytes("the content", t.read(&id, "a").await?, b"short")
}

async fn a_broken_body_changes_nothing(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "a", "before").await?;
    for at in ["a", "new"] {
        let broken = Error::new(ErrorKind::Provider, "the body broke off");
        let body = ByteStream::new(stream::iter([Ok(Bytes::from_static(b"half of it")), Err(broken)]));
        let result = t.provider.write_file(&t.cx, &id, &path(at), WriteOptions::default(), body).await;
        ensure!(result.is_err(), "a body that breaks off is taken for whole");
    }
    same_bytes("the content", t.read(&id, "a").await?, b"before")?;
    fails("reading the half-written file", t.read(&id, "new").await, ErrorKind::NotFound)?;
    let (entries, _) = list(t, &id, ".", 1, 10).await?;
    same("what is left in the folder", names(&entries), vec!["/workspace/a"])
}

async fn programs_see_the_same_files(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "in", "from outside").await?;
    same_bytes(
        "what cat reads",
        t.output(&id, ExecRequest::program(["/bin/cat", "in"])).await?,
        b"from outside",
    )?;
    t.output(&id, ExecRequest::shell("echo from inside > out")).await?;
    same_bytes("what a program wrote", t.read(&id, "out").await?, b"from inside\n")?;
    // A program may write to what it was given.
    t.output(&id, ExecRequest::shell("echo changed > in")).await?;
    same_bytes("what it changed", t.read(&id, "in").await?, b"changed\n")
}

async fn stat_and_list_tell_what_is_there(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "b", "12345").await?;
    t.write(&id, "a/inner/deep", "1").await?;
    let file = stat(t, &id, "b").await?;
    same("a file's kind and size", (file.kind, file.size.as_u64()), (FileKind::File, 5))?;
    same("a file's path", file.path, path("b"))?;
    same("a folder's kind", stat(t, &id, "a").await?.kind, FileKind::Directory)?;
    let (entries, more) = list(t, &id, ".", 1, 100).await?;
    same("one level", names(&entries), vec!["/workspace/a", "/workspace/b"])?;
    ensure!(!more, "a whole list claims that there is more");
    let (entries, _) = list(t, &id, ".", 2, 100).await?;
    same("two levels", names(&entries), vec!["/workspace/a", "/workspace/a/inner", "/workspace/b"])?;
    fails(
        "stat of what is not there",
        t.files(&id, FileOp::Stat { path: path("c") }).await,
        ErrorKind::NotFound,
    )?;
    let absent = FileOp::List { path: path("c"), depth: 1, limit: 1 };
    fails("list of what is not there", t.files(&id, absent).await, ErrorKind::NotFound)
}

async fn listing_is_bounded(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    for name in ["c", "a", "d", "b"] {
        t.write(&id, &format!("d/{name}"), "").await?;
    }
    let (entries, more) = list(t, &id, "d", 1, 3).await?;
    same("the first three", names(&entries), vec!["/workspace/d/a", "/workspace/d/b", "/workspace/d/c"])?;
    ensure!(more, "a cut list claims to be whole");
    Ok(())
}

async fn odd_names_are_names(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let odd =
        [" ", "-rf", "a b", "a\nb", "a\\b", "*", "~", "$HOME", "ü", "日本", "...", "\"'", &"n".repeat(255)];
    for name in odd {
        t.write(&id, &format!("odd/{name}"), name.to_owned()).await?;
    }
    for name in odd {
        same_bytes("the content", t.read(&id, &format!("odd/{name}")).await?, name.as_bytes())?;
    }
    let (entries, _) = list(t, &id, "odd", 1, 100).await?;
    same("the number of odd names", entries.len(), odd.len())
}

async fn moving_and_removing(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "a/one", "1").await?;
    t.write(&id, "two", "2").await?;
    ensure_done(&t.files(&id, FileOp::Move { from: path("two"), to: path("a/one") }).await?)?;
    same_bytes("the moved content", t.read(&id, "a/one").await?, b"2")?;
    fails("reading what was moved away", t.read(&id, "two").await, ErrorKind::NotFound)?;
    ensure_done(&t.files(&id, FileOp::Move { from: path("a"), to: path("x/y") }).await?)?;
    same_bytes("what moved with its folder", t.read(&id, "x/y/one").await?, b"2")?;
    let absent = FileOp::Move { from: path("a"), to: path("b") };
    fails("moving what is not there", t.files(&id, absent).await, ErrorKind::NotFound)?;

    let full = FileOp::Remove { path: path("x"), recursive: false };
    fails("removing a full folder", t.files(&id, full).await, ErrorKind::FileSystem)?;
    same_bytes("what the refusal left", t.read(&id, "x/y/one").await?, b"2")?;
    ensure_done(&t.files(&id, FileOp::Remove { path: path("x"), recursive: true }).await?)?;
    fails("reading what was removed", t.read(&id, "x/y/one").await, ErrorKind::NotFound)?;
    let again = FileOp::Remove { path: path("x"), recursive: true };
    fails("removing it again", t.files(&id, again).await, ErrorKind::NotFound)?;

    for _ in 0..2 {
        ensure_done(&t.files(&id, FileOp::MakeDir { path: path("m/n") }).await?)?;
    }
    same("a made folder's kind", stat(t, &id, "m/n").await?.kind, FileKind::Directory)?;
    ensure_done(&t.files(&id, FileOp::Remove { path: path("m/n"), recursive: false }).await?)
}

fn ensure_done(reply: &FileReply) -> Verdict {
    ensure!(matches!(reply, FileReply::Done), "a change answers {reply:?}");
    Ok(())
}

async fn modes_are_permissions_only(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "a", "").await?;
    t.files(&id, FileOp::SetMode { path: path("a"), mode: 0o750 }).await?;
    same("the mode", stat(t, &id, "a").await?.mode & 0o7777, 0o750)?;
    for mode in [0o4755, 0o2755, 0o1755] {
        let op = FileOp::SetMode { path: path("a"), mode };
        ensure!(t.files(&id, op).await.is_err(), "mode {mode:o} is taken");
        same("the mode after a refusal", stat(t, &id, "a").await?.mode & 0o7777, 0o750)?;
    }
    Ok(())
}

async fn the_wrong_kind_is_told(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "file", "").await?;
    t.files(&id, FileOp::MakeDir { path: path("folder") }).await?;
    fails("reading a folder", t.read(&id, "folder").await, ErrorKind::FileSystem)?;
    fails("writing over a folder", t.write(&id, "folder", "x").await, ErrorKind::FileSystem)?;
    fails("writing below a file", t.write(&id, "file/below", "x").await, ErrorKind::FileSystem)?;
    let op = FileOp::List { path: path("file"), depth: 1, limit: 1 };
    fails("listing a file", t.files(&id, op).await, ErrorKind::FileSystem)?;
    let op = FileOp::MakeDir { path: path("file") };
    fails("making a folder over a file", t.files(&id, op).await, ErrorKind::FileSystem)
}

async fn search_finds_by_name(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    for at in ["s/a.py", "s/b/c.py", "s/b/c.pyc", "s/py"] {
        t.write(&id, at, "").await?;
    }
    let op = |limit| FileOp::Search { root: path("s"), pattern: "*.py".to_owned(), limit };
    let FileReply::Found { paths, more } = t.files(&id, op(10)).await? else {
        return Err(Failure::Failed("search answers something else".to_owned()));
    };
    same("what was found", paths, vec![path("s/a.py"), path("s/b/c.py")])?;
    ensure!(!more, "a whole search claims that there is more");
    let FileReply::Found { paths, more } = t.files(&id, op(1)).await? else {
        return Err(Failure::Failed("search answers something else".to_owned()));
    };
    ensure!(paths.len() == 1 && more, "a search for one gives {paths:?}, more: {more}");
    Ok(())
}

async fn write_with(t: &Trial<'_>, id: &SandboxId, at: &str, metadata: &Metadata) -> Verdict {
    let options = WriteOptions { metadata: metadata.clone() };
    let body = ByteStream::from(Bytes::from_static(b"x"));
    Ok(t.provider.write_file(&t.cx, id, &path(at), options, body).await?)
}

async fn metadata_goes_with_its_file(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let kept = Metadata::from([("b", "2 and more"), ("a", "")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    write_with(t, &id, "s/file", &kept).await?;
    same("what is kept", stat(t, &id, "s/file").await?.metadata, kept.clone())?;
    let (entries, _) = list(t, &id, "s", 1, 10).await?;
    let told: Vec<Metadata> = entries.into_iter().map(|info| info.metadata).collect();
    same("what a list tells", told, vec![kept.clone()])?;
    t.files(&id, FileOp::Move { from: path("s/file"), to: path("s/moved") }).await?;
    same("what a moved file keeps", stat(t, &id, "s/moved").await?.metadata, kept.clone())?;
    write_with(t, &id, "s/file", &kept).await?;
    write_with(t, &id, "s/file", &Metadata::new()).await?;
    same("what a new file keeps", stat(t, &id, "s/file").await?.metadata, Metadata::new())
}

async fn root_works_in_its_home_and_in_the_users(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let root = t.cx.clone().acting_as(User::Root);
    for at in ["/root/folder/file", "/home/user/folder/file", "/tmp/file"] {
        let body = ByteStream::from(Bytes::from_static(b"root's"));
        t.provider.write_file(&root, &id, &path(at), WriteOptions::default(), body).await?;
        let content = t.provider.read_file(&root, &id, &path(at), ReadRange::default()).await?;
        same_bytes(at, &content.collect(100).await?, b"root's")?;
    }
    t.write(&id, "/home/user/folder/file", "the user's").await?;
    // Where the host has a single id for both, they have the same rights.
    let stat = FileOp::Stat { path: path("/root/folder/file") };
    if let FileReply::Info(FileInfo { owner: Some(User::Root), .. }) =
        t.provider.files(&root, &id, stat).await?
    {
        ensure!(t.write(&id, "/root/other", "x").await.is_err(), "anybody writes in the home of root");
    }
    let remove = FileOp::Remove { path: path("/root/folder"), recursive: true };
    ensure_done(&t.provider.files(&root, &id, remove).await?)
}
