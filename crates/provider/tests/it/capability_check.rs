//! The check layer refuses what is not offered, by name, without asking the provider.

use std::sync::Arc;

use sandstorm_provider::layers::CapabilityCheck;
use sandstorm_provider::{
    AttachFrom, ByteStream, CreateOptions, ExecRequest, ExecSignal, FileOp, ForkOptions, Metadata, OpContext,
    Provider, ReadRange, Result, SnapshotKind, SnapshotOptions, Stdin, TtySize, WatchOptions, WriteOptions,
};
use sandstorm_types::{
    Capabilities, ErrorKind, ExecId, GuestPath, NetworkPolicy, Retry, SandboxId, SandboxSpec, TenantId,
    Transition, User,
};

use crate::broken::{Broken, Fault};

fn incapable() -> CapabilityCheck {
    CapabilityCheck::new(Arc::new(Broken::new(Fault::Claims(Capabilities::default()))))
}

fn refused<T>(result: Result<T>, feature: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{feature} is not refused"));
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere), "{error}");
    assert!(error.reasons().iter().any(|unmet| unmet.feature == feature), "{feature}: {error}");
    assert_eq!(error.provider(), Some("memory"));
}

#[tokio::test]
async fn every_operation_needs_its_capability() {
    let provider = incapable();
    let cx = OpContext::new(TenantId::LOCAL);
    let (id, exec, path) = (SandboxId::random(), ExecId::random(), GuestPath::workspace());
    let spec = SandboxSpec::default();
    refused(provider.create(&cx, &spec, CreateOptions::default()).await, "template_host");
    refused(provider.exec(&cx, &id, ExecRequest::program(["/bin/true"])).await, "exec");
    refused(provider.attach(&cx, &exec, AttachFrom::START).await, "exec_attach");
    refused(provider.signal(&cx, &exec, ExecSignal::Kill).await, "exec");
    refused(provider.signal(&cx, &exec, ExecSignal::Interrupt).await, "exec_signals");
    refused(provider.signal(&cx, &exec, ExecSignal::CloseStdin).await, "exec_stdin");
    refused(provider.signal(&cx, &exec, ExecSignal::Resize(TtySize { rows: 1, cols: 1 })).await, "exec_tty");
    refused(provider.read_file(&cx, &id, &path, ReadRange::default()).await, "files");
    let write = async |cx: &OpContext, metadata: Metadata| {
        let body = ByteStream::from(bytes::Bytes::new());
        provider.write_file(cx, &id, &path, WriteOptions { metadata }, body).await
    };
    refused(write(&cx, Metadata::new()).await, "files");
    refused(write(&cx, [("a".to_owned(), "b".to_owned())].into()).await, "files_metadata");
    let root = cx.clone().acting_as(User::Root);
    refused(write(&root, Metadata::new()).await, "files_root");
    refused(provider.read_file(&root, &id, &path, ReadRange::default()).await, "files_root");
    refused(provider.files(&root, &id, FileOp::Stat { path: path.clone() }).await, "files_root");
    refused(provider.watch(&root, &id, &path, WatchOptions::default()).await, "files_root");
    refused(provider.files(&cx, &id, FileOp::Pack { path: path.clone() }).await, "files_archive");
    let search = FileOp::Search { root: path.clone(), pattern: "*".to_owned(), limit: 1 };
    refused(provider.files(&cx, &id, search).await, "files_search");
    refused(provider.watch(&cx, &id, &path, WatchOptions::default()).await, "files_watch");
    refused(provider.connect(&cx, &id, 80).await, "connect");
    refused(provider.signal(&cx, &exec, ExecSignal::Forget { before: 1 }).await, "exec_attach");
    refused(provider.set_network(&cx, &id, NetworkPolicy::None).await, "network_change");
    refused(provider.set_network(&cx, &id, NetworkPolicy::Open).await, "network_open");
    refused(provider.usage(&cx, &id).await, "usage");
    let fork = ForkOptions {
        spec: spec.clone(),
        create: CreateOptions::default(),
        execs: Vec::new(),
        partial: false,
    };
    refused(provider.fork(&cx, &id, fork).await, "live_fork");
    refused(provider.transition(&cx, &id, Transition::Pause).await, "pause");
    for (kind, feature) in
        [(SnapshotKind::Files, "snapshot_files"), (SnapshotKind::Memory, "snapshot_memory")]
    {
        refused(
            provider.snapshot(&cx, &id, SnapshotOptions { kind, ..SnapshotOptions::files() }).await,
            feature,
        );
    }
}

#[tokio::test]
async fn every_wish_of_a_request_needs_its_capability() {
    let only_exec = Capabilities { exec: true, ..Capabilities::default() };
    let provider = CapabilityCheck::new(Arc::new(Broken::new(Fault::Claims(only_exec))));
    let cx = OpContext::new(TenantId::LOCAL);
    type Wish = fn(&mut ExecRequest);
    let wishes: [(Wish, &str); 5] = [
        (|req| req.stdin = Stdin::Stream, "exec_stdin"),
        (|req| req.tty = Some(TtySize { rows: 1, cols: 1 }), "exec_tty"),
        (|req| req.background = true, "exec_background"),
        (|req| req.channel = true, "exec_channel"),
        (|req| req.user = Some(User::Root), "exec_root"),
    ];
    for (wish, feature) in wishes {
        let mut req = ExecRequest::program(["/bin/true"]);
        wish(&mut req);
        refused(provider.exec(&cx, &SandboxId::random(), req).await, feature);
    }
    // Without wishes the provider is asked, and does not know the sandbox.
    let plain = provider.exec(&cx, &SandboxId::random(), ExecRequest::program(["/bin/true"])).await;
    assert_eq!(plain.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn every_reason_is_told_once() {
    let unmet = incapable().admits(&SandboxSpec::default()).unwrap_err();
    let features: Vec<_> = unmet.iter().map(|unmet| unmet.feature.as_str()).collect();
    let distinct: std::collections::BTreeSet<_> = features.iter().collect();
    assert_eq!(features.len(), distinct.len(), "{features:?}");
    assert!(features.contains(&"template_host") && features.contains(&"memory"), "{features:?}");
}
