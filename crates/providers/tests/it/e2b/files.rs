//! Files: large ones, odd names, bodies and downloads that break.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandstorm_provider::{ByteStream, FileOp, FileReply, Provider, ProviderExt, ReadRange, WriteOptions};
use sandstorm_types::{ErrorKind, GuestPath};

use super::world::{adapter, behind_proxy, world};
use crate::proxy::{Fault, answer};
use crate::world::{cx, sandbox};

fn path(text: &str) -> GuestPath {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_large_file_goes_there_and_back_in_pieces() {
    let world = world().await;
    let adapter = adapter(&world).await;
    let id = sandbox(&adapter).await;
    let piece: Bytes = (0..1 << 20).map(|place: u32| (place % 251) as u8).collect();
    let body = ByteStream::new(stream::iter(vec![piece.clone(); 64]).map(Ok));
    adapter.write_file(&cx(), &id, &path("large"), WriteOptions::default(), body).await.unwrap();
    let mut back = adapter.read_file(&cx(), &id, &path("large"), ReadRange::default()).await.unwrap();
    let mut read = 0;
    while let Some(bytes) = back.next().await {
        let bytes = bytes.unwrap();
        assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == piece[(read + n) % piece.len()]));
        read += bytes.len();
    }
    assert_eq!(read, 64 << 20);
}

#[tokio::test]
async fn a_body_that_stops_leaves_the_old_file_and_nothing_beside_it() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    adapter.write_bytes(&cx(), &id, &path("a"), Bytes::from_static(b"before")).await.unwrap();
    proxy.set(|line| if line.starts_with("POST /files") { Fault::CutAfter(0) } else { Fault::Pass });
    let error = adapter.write_bytes(&cx(), &id, &path("a"), Bytes::from_static(b"after")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error}");
    proxy.set(|line| if line.contains("/Move") { Fault::Reset } else { Fault::Pass });
    adapter.write_bytes(&cx(), &id, &path("a"), Bytes::from_static(b"after")).await.unwrap_err();
    proxy.heal();
    assert_eq!(adapter.read_bytes(&cx(), &id, &path("a"), 100).await.unwrap(), "before");
    let list = FileOp::List { path: path("."), depth: 9, limit: 100 };
    let Ok(FileReply::List { entries, .. }) = adapter.files(&cx(), &id, list).await else {
        panic!("no list")
    };
    assert_eq!(entries.len(), 1, "{entries:?}");
}

#[tokio::test]
async fn a_download_that_breaks_is_not_taken_for_whole() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    adapter.write_bytes(&cx(), &id, &path("a"), Bytes::from(vec![7; 1 << 20])).await.unwrap();
    proxy.set(|line| if line.starts_with("GET /files") { Fault::CutAfter(100_000) } else { Fault::Pass });
    let error = adapter.read_bytes(&cx(), &id, &path("a"), 2 << 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error}");
    // Who does not know parts gives all of it; more than was asked for is left out.
    let whole = answer("200 OK", "", &"0123456789".repeat(100));
    proxy.set(move |line| if line.starts_with("GET /files") { whole.clone() } else { Fault::Pass });
    let range = ReadRange { offset: 12, length: Some(5) };
    let part = adapter.read_file(&cx(), &id, &path("a"), range).await.unwrap().collect(100).await.unwrap();
    assert_eq!(part, "23456");
}

#[tokio::test]
async fn lists_that_lead_elsewhere_are_no_lists() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    for entry in [
        r#"{"path":"/etc/passwd","type":"FILE_TYPE_FILE","modifiedTime":"2026-01-01T00:00:00Z"}"#,
        r#"{"path":"../x","type":"FILE_TYPE_FILE","modifiedTime":"2026-01-01T00:00:00Z"}"#,
        r#"{"path":"/workspace/a","type":{},"modifiedTime":"2026-01-01T00:00:00Z"}"#,
    ] {
        let told = answer("200 OK", "", &format!(r#"{{"entries":[{entry}]}}"#));
        proxy.set(move |line| if line.contains("ListDir") { told.clone() } else { Fault::Pass });
        let list = FileOp::List { path: path("."), depth: 1, limit: 10 };
        assert_eq!(adapter.files(&cx(), &id, list).await.unwrap_err().kind(), ErrorKind::Provider, "{entry}");
    }
    let other =
        r#"{"entry":{"path":"/workspace/b","type":"FILE_TYPE_FILE","modifiedTime":"2026-01-01T00:00:00Z"}}"#;
    let told = answer("200 OK", "", other);
    proxy.set(move |line| if line.contains("/Stat") { told.clone() } else { Fault::Pass });
    let stat = FileOp::Stat { path: path("a") };
    assert_eq!(adapter.files(&cx(), &id, stat).await.unwrap_err().kind(), ErrorKind::Provider);
}
