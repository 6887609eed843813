//! Files: owner and state are checked, sizes are bounded.

use bytes::Bytes;
use futures_util::stream;
use sandstorm_provider::{ByteStream, FileOp, ReadRange};
use sandstorm_types::{ByteSize, ErrorKind, GuestPath, LimitsPatch};

use crate::world::{World, plain};
use sandstorm_control::server::NewSandbox;

#[tokio::test]
async fn what_is_written_is_read_whole_and_in_part() {
    let world = World::new().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let path: GuestPath = "/workspace/a/b.txt".parse().unwrap();
    let body = ByteStream::from(Bytes::from_static(b"0123456789"));
    let written = world.control.write_file(&caller, id, &path, body).await.unwrap();
    assert_eq!((written.path.as_str(), written.size), ("/workspace/a/b.txt", 10));
    let read = |range| world.control.read_file(&caller, id, &path, range);
    let (info, content) = read(ReadRange::default()).await.unwrap();
    assert_eq!(info.size, ByteSize::bytes(10));
    assert_eq!(content.collect(100).await.unwrap(), "0123456789");
    let (_, part) = read(ReadRange { offset: 3, length: Some(4) }).await.unwrap();
    assert_eq!(part.collect(100).await.unwrap(), "3456");
    let (_, tail) = read(ReadRange { offset: 8, length: Some(100) }).await.unwrap();
    assert_eq!(tail.collect(100).await.unwrap(), "89");
    let noted = world.store.noted_files(caller.tenant(), id).await.unwrap();
    assert_eq!((noted[0].path.as_str(), noted[0].size), ("/workspace/a/b.txt", 10));
}

#[tokio::test]
async fn more_than_the_disk_is_refused_while_it_streams() {
    let world = World::new().await;
    let caller = world.caller();
    let limits = LimitsPatch { disk: Some(ByteSize::mib(1)), ..LimitsPatch::default() };
    let id = world.control.create_sandbox(&caller, NewSandbox { limits, ..plain() }).await.unwrap().id;
    let path: GuestPath = "/workspace/large".parse().unwrap();
    // Endless: only a bound that works while it streams ends this test.
    let endless = ByteStream::new(stream::repeat_with(|| Ok(Bytes::from(vec![0; 64 * 1024]))));
    let error = world.control.write_file(&caller, id, &path, endless).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileSystem);
    assert!(world.control.files(&caller, id, FileOp::Stat { path }).await.is_err());
}

#[tokio::test]
async fn strangers_and_paused_sandboxes_give_nothing() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let path: GuestPath = "/workspace/x".parse().unwrap();
    let body = || ByteStream::from(Bytes::from_static(b"x"));
    let op = || FileOp::List { path: GuestPath::workspace(), depth: 1, limit: 10 };
    let kinds = [
        world.control.write_file(&stranger, id, &path, body()).await.unwrap_err().kind(),
        world.control.read_file(&stranger, id, &path, ReadRange::default()).await.unwrap_err().kind(),
        world.control.files(&stranger, id, op()).await.unwrap_err().kind(),
        world.control.watch(&stranger, id, &path, Default::default()).await.err().unwrap().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::NotFound; 4]);
    world.control.pause_sandbox(&caller, id).await.unwrap();
    assert_eq!(world.control.files(&caller, id, op()).await.unwrap_err().kind(), ErrorKind::Conflict);
    world.control.delete_sandbox(&caller, id).await.unwrap();
    assert_eq!(world.control.files(&caller, id, op()).await.unwrap_err().kind(), ErrorKind::Conflict);
}
