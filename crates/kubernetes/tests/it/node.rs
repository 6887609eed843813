//! A real node: pods that run. Started by `make test-k8s`, as root.

mod ends;
mod network;
mod pool;

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::PostParams;
use sandstorm_kubernetes::KubernetesProvider;
use sandstorm_provider::conformance::{self, Outcome};
use sandstorm_provider::{
    CreateOptions, EndCause, ExecEvent, ExecRequest, ExecStatus, Provider, ProviderExt, ReadRange,
    WriteOptions,
};
use sandstorm_types::{ByteSize, Enforcement, ErrorKind, MilliCpus, SandboxId, SandboxSpec, State};
use serde_json::json;

use crate::world::{Kind, World, cx, from, spec};

pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) async fn world() -> World {
    World::new(Kind::Node).await.expect("run scripts/kubernetes.sh build node")
}

pub(crate) async fn sandbox(provider: &KubernetesProvider) -> SandboxId {
    provider.create(&cx(), &spec(), CreateOptions::default()).await.unwrap().id
}

/// Says what was seen, for the log of the run.
#[expect(clippy::print_stderr, reason = "the log of a run on a real node is read by people")]
pub(crate) fn tell(line: &str) {
    eprintln!("node: {line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn python_streams_from_a_pod_which_is_gone_afterwards() {
    let world = world().await;
    let provider = world.provider().await;
    let begin = Instant::now();
    let id = sandbox(&provider).await;
    let pod = world.pod(id).await;
    tell(&format!(
        "{} on {} ready after {} ms, user {:?}, image {:?}",
        pod.metadata.name.as_deref().unwrap(),
        pod.spec.as_ref().unwrap().node_name.as_deref().unwrap_or("nowhere"),
        begin.elapsed().as_millis(),
        pod.spec.as_ref().unwrap().security_context.as_ref().unwrap().run_as_user,
        pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap(),
    ));
    let code = "import sys, time, platform\n\
                print('python', platform.python_version(), flush=True)\n\
                for n in range(3):\n    print('line', n, flush=True)\n    time.sleep(0.3)\n\
                print('to stderr', file=sys.stderr)\nsys.exit(7)\n";
    let begin = Instant::now();
    let mut exec = provider.exec(&cx(), &id, ExecRequest::program([PYTHON, "-c", code])).await.unwrap();
    let (mut arrivals, mut end) = (Vec::new(), None);
    while let Some(event) = exec.events.next().await {
        match event.unwrap() {
            ExecEvent::Started => tell(&format!("{:4} ms started", begin.elapsed().as_millis())),
            ExecEvent::Output { stream, bytes, .. } => {
                let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                tell(&format!("{:4} ms {stream:?}: {text}", begin.elapsed().as_millis()));
                arrivals.push(begin.elapsed());
            }
            ExecEvent::Exited(exited) => {
                tell(&format!(
                    "{:4} ms {:?} by {:?}",
                    begin.elapsed().as_millis(),
                    exited.status,
                    exited.cause
                ));
                end = Some(exited);
            }
            ExecEvent::Channel { .. } => {}
        }
    }
    let end = end.unwrap();
    assert_eq!((end.status, end.cause), (ExecStatus::Code(7), EndCause::Program));
    assert!(arrivals.len() >= 4, "the output came in {} pieces", arrivals.len());
    assert!(arrivals[arrivals.len() - 1] - arrivals[0] > Duration::from_millis(500), "it did not stream");
    let begin = Instant::now();
    provider.destroy(&cx(), &id).await.unwrap();
    tell(&format!(
        "destroyed after {} ms, {} pods left",
        begin.elapsed().as_millis(),
        world.pod_count().await
    ));
    assert_eq!(world.pod_count().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn it_keeps_the_contract_of_every_provider() {
    let world = world().await;
    world.keep_policies().await;
    let mut config = world.config();
    // What holds only roughly is not claimed here.
    config.loose_limits = false;
    let provider = KubernetesProvider::connect(config).await.unwrap();
    // Several fit on a small node.
    let mut base = SandboxSpec { enforcement: Enforcement::BestEffort, ..spec() };
    base.limits.cpus = MilliCpus::new(250);
    let report = conformance::run_with(&provider, base, "").await;
    let skipped: Vec<_> = report
        .cases
        .iter()
        .filter(|case| matches!(case.outcome, Outcome::Skipped(_)))
        .map(|case| format!("{}/{}", case.suite, case.name))
        .collect();
    let passed = report.cases.iter().filter(|case| matches!(case.outcome, Outcome::Passed)).count();
    tell(&format!("conformance: {passed} passed, {} skipped: {}", skipped.len(), skipped.join(" ")));
    assert!(report.passed(), "{report}");
    assert_eq!(world.pod_count().await, 0, "pods are left");
}

/// Runs a program. Who was cut off hears of it a moment later, and is not told whether its program began.
async fn said(provider: &KubernetesProvider, id: &SandboxId) -> bytes::Bytes {
    for _ in 0..20 {
        match provider.exec_collect(&cx(), id, ExecRequest::shell("echo here")).await {
            Ok(done) => return done.stdout,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Provider, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it is cut off for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn a_server_that_comes_back_goes_on_with_the_pods() {
    let world = world().await;
    let provider = world.provider().await;
    let id = sandbox(&provider).await;
    let body = bytes::Bytes::from_static(b"kept");
    provider
        .write_file(&cx(), &id, &"kept.txt".parse().unwrap(), WriteOptions::default(), body.into())
        .await
        .unwrap();
    provider.close().await;
    drop(provider);
    let provider = world.provider().await;
    assert_eq!(provider.get(&cx(), &id).await.unwrap().state, State::Ready);
    let read =
        provider.read_file(&cx(), &id, &"kept.txt".parse().unwrap(), ReadRange::default()).await.unwrap();
    assert_eq!(read.collect(100).await.unwrap(), "kept");
    // The newest one is the host; what an earlier one still holds is cut off and joins again when it is used.
    let other = world.provider().await;
    for provider in [&other, &provider, &other] {
        let begin = Instant::now();
        assert_eq!(said(provider, &id).await, "here\n");
        tell(&format!("joined again after {} ms", begin.elapsed().as_millis()));
    }
    provider.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.pod_count().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn much_goes_both_ways_at_once() {
    let world = world().await;
    let provider = world.provider().await;
    let id = sandbox(&provider).await;
    let begin = Instant::now();
    let flood = "head -c 9000000 /dev/zero";
    let (context, path) = (cx(), "large".parse().unwrap());
    let large = bytes::Bytes::from(vec![b'x'; 32 << 20]);
    let (first, second, written) = tokio::join!(
        provider.exec_collect(&context, &id, ExecRequest::shell(flood)),
        provider.exec_collect(&context, &id, ExecRequest::shell(flood)),
        provider.write_file(&context, &id, &path, WriteOptions::default(), large.into()),
    );
    written.unwrap();
    assert_eq!((first.unwrap().stdout.len(), second.unwrap().stdout.len()), (9_000_000, 9_000_000));
    let told = provider.exec_collect(&cx(), &id, ExecRequest::shell("wc -c < large")).await.unwrap();
    assert_eq!(told.stdout, "33554432\n");
    tell(&format!("32 MiB in and 18 MB out after {} ms", begin.elapsed().as_millis()));
    provider.destroy(&cx(), &id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn programs_have_no_more_rights_than_they_need() {
    let world = world().await;
    let provider = world.provider().await;
    let id = sandbox(&provider).await;
    let line = "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; \
                ls /var/run/secrets 2>&1; touch /root 2>&1; touch /x 2>&1; cat /run/sandstorm/none 2>&1; true";
    let told = provider.exec_collect(&cx(), &id, ExecRequest::shell(line)).await.unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    tell(&told.replace('\n', " | "));
    let user: u64 = told.lines().next().unwrap().parse().unwrap();
    assert!(user >= 1 << 20, "{told}");
    for wall in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(told.contains(wall), "{told}");
    }
    assert!(told.contains("Read-only file system") && told.contains("No such file"), "{told}");
    provider.destroy(&cx(), &id).await.unwrap();
}

/// What is executed for the next connection is what was put there, whatever programs did meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn programs_cannot_replace_the_agent() {
    let world = world().await;
    let provider = world.provider().await;
    let id = sandbox(&provider).await;
    let line = "cd /run/sandstorm; printf '#!/bin/sh\\ntouch /workspace/caught\\n' > /tmp/evil; chmod 755 /tmp/evil; \
                for try in 'cp /tmp/evil agent' 'mv /tmp/evil agent' 'rm agent' 'chmod 777 agent' 'ln -sf /tmp/evil agent' \
                'mkdir x' 'mv agent other'; do $try 2>&1 && echo done; done; cp /tmp/evil /run/sandstorm-door/agent; true";
    let told = provider.exec_collect(&cx(), &id, ExecRequest::shell(line)).await.unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    tell(&told.replace('\n', " | "));
    assert_eq!(told.lines().filter(|line| line.contains("Read-only file system")).count(), 7, "{told}");
    assert!(!told.contains("done"), "{told}");
    let other = world.provider().await;
    for provider in [&other, &provider] {
        assert_eq!(said(provider, &id).await, "here\n");
    }
    let look = provider.exec_collect(&cx(), &id, ExecRequest::shell("ls /workspace")).await.unwrap();
    assert_eq!(look.stdout, "");
    provider.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.pod_count().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn no_room_is_capacity_and_classes_are_used() {
    let world = world().await;
    let provider = world.provider().await;
    let mut huge = spec();
    huge.limits.memory = ByteSize::mib(900_000);
    let error = provider.create(&cx(), &huge, CreateOptions::default()).await.unwrap_err();
    tell(&error.to_string());
    assert_eq!(error.kind(), ErrorKind::Capacity, "{error}");
    let classes: Api<RuntimeClass> = Api::all(world.admin.clone());
    let class = json!({ "metadata": { "name": "other" }, "handler": "other" });
    classes.create(&PostParams::default(), &from(class)).await.unwrap();
    let mut config = world.config();
    config.runtime_class = Some("other".to_owned());
    let classed = KubernetesProvider::connect(config).await.unwrap();
    let id = sandbox(&classed).await;
    let used = world.pod(id).await.spec.unwrap().runtime_class_name;
    assert_eq!(used.as_deref(), Some("other"));
    classed.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.pod_count().await, 0);
}
