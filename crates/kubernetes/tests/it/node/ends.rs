//! How sandboxes end, and creations that come to nothing.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, EvictParams};
use sandstorm_kubernetes::{KubernetesProvider, Pull};
use sandstorm_provider::{
    CreateOptions, EndCause, ExecEvent, ExecRequest, Provider, ProviderEvent, ProviderExt,
};
use sandstorm_types::{ByteSize, ErrorKind, LimitName, Retry, State};

use super::{PYTHON, sandbox, tell, world};
use crate::world::{cx, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn a_pod_that_is_lost_ends_its_programs_and_is_told() {
    let world = world().await;
    let provider = world.provider().await;
    let mut events = provider.events();
    let id = sandbox(&provider).await;
    let exec = provider.exec(&cx(), &id, ExecRequest::program(["/bin/sleep", "100"])).await.unwrap();
    world
        .pods()
        .delete(&format!("sbx-{}", id.bare()), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    let events_of: Vec<_> =
        tokio::time::timeout(Duration::from_secs(30), exec.events.try_collect()).await.unwrap().unwrap();
    let Some(ExecEvent::Exited(end)) = events_of.last() else { panic!("{events_of:?}") };
    assert_eq!(end.cause, EndCause::Sandbox);
    let told = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap();
    assert!(matches!(told, ProviderEvent::Ended { sandbox, .. } if sandbox == id), "{told:?}");
    provider.destroy(&cx(), &id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn the_cluster_ends_what_everybody_forgot() {
    let world = world().await;
    let mut config = world.config();
    config.longest_life = Duration::from_secs(3);
    let provider = KubernetesProvider::connect(config).await.unwrap();
    let mut short = spec();
    short.lifetime.after = Duration::from_secs(2);
    let id = provider.create(&cx(), &short, CreateOptions::default()).await.unwrap().id;
    let exec = provider.exec(&cx(), &id, ExecRequest::program(["/bin/sleep", "100"])).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), exec.collect()).await.unwrap().unwrap();
    assert_eq!(ended.end.cause, EndCause::Limit(LimitName::Wall));
    let state = provider.get(&cx(), &id).await.unwrap().state;
    tell(&format!("after its deadline the pod is {state:?}"));
    assert!(matches!(state, State::Failed { .. }), "{state:?}");
    provider.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.pod_count().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn who_evicts_a_pod_is_named() {
    let world = world().await;
    let provider = world.provider().await;
    let mut events = provider.events();
    let id = sandbox(&provider).await;
    let exec = provider.exec(&cx(), &id, ExecRequest::program(["/bin/sleep", "100"])).await.unwrap();
    world.pods().evict(&format!("sbx-{}", id.bare()), &EvictParams::default()).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), exec.collect()).await.unwrap().unwrap();
    assert_eq!(ended.end.cause, EndCause::Sandbox);
    let told = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap();
    let ProviderEvent::Ended { reason, .. } = told else { panic!("{told:?}") };
    tell(&format!("evicted: {reason}"));
    assert!(reason.contains("Evict"), "{reason}");
    // Whoever asks is told, until it is removed.
    let state = provider.get(&cx(), &id).await.unwrap().state;
    assert!(matches!(&state, State::Failed { reason } if reason.contains("Evict")), "{state:?}");
    provider.destroy(&cx(), &id).await.unwrap();
    assert_eq!(provider.get(&cx(), &id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.pod_count().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn an_image_that_cannot_be_had_is_told_before_the_time_is_over() {
    let world = world().await;
    for (image, pull) in [
        // Nobody listens there.
        ("127.0.0.1:1/nobody/none:1", Pull::IfNotPresent),
        ("docker.io/sandstorm/none:1", Pull::Never),
        ("not an image", Pull::IfNotPresent),
    ] {
        let mut config = world.config();
        (config.image, config.pull) = (image.to_owned(), pull);
        config.ready_within = Duration::from_secs(60);
        let provider = KubernetesProvider::connect(config).await.unwrap();
        let begin = Instant::now();
        let error = provider.create(&cx(), &spec(), CreateOptions::default()).await.unwrap_err();
        tell(&format!("{image:?} after {} ms: {error}", begin.elapsed().as_millis()));
        assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(45), "{error}");
        assert_eq!(world.pod_count().await, 0, "the pod is left");
    }
}

/// Files lie in memory beside that of programs, and neither ends the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn a_full_disk_ends_nothing_and_memory_still_ends_programs() {
    let world = world().await;
    let provider = world.provider().await;
    let mut wanted = spec();
    (wanted.limits.memory, wanted.limits.disk) = (ByteSize::mib(64), ByteSize::mib(128));
    let id = provider.create(&cx(), &wanted, CreateOptions::default()).await.unwrap().id;
    for line in ["head -c 200M /dev/zero > full && echo fits || echo full", "echo full"] {
        let done = provider.exec_collect(&cx(), &id, ExecRequest::shell(line)).await.unwrap();
        assert_eq!((done.end.cause, &done.stdout[..]), (EndCause::Program, &b"full\n"[..]), "{line}");
    }
    assert!(provider.get(&cx(), &id).await.unwrap().state.is_ready());
    let greedy = ExecRequest::shell("x=0123456789abcdef; while :; do x=$x$x; done");
    let ended = provider.exec_collect(&cx(), &id, greedy).await.unwrap();
    assert_eq!(ended.end.cause, EndCause::Limit(LimitName::Memory));
    provider.destroy(&cx(), &id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-k8s"]
async fn processor_time_ends_programs_however_many_share_it() {
    let world = world().await;
    let provider = world.provider().await;
    let mut wanted = spec();
    wanted.limits.cpu_time = Some(Duration::from_secs(1));
    let id = provider.create(&cx(), &wanted, CreateOptions::default()).await.unwrap().id;
    let fine = ExecRequest::program([PYTHON, "-c", "print(6 * 7)"]);
    assert_eq!(provider.exec_collect(&cx(), &id, fine.clone()).await.unwrap().stdout, "42\n");
    let spread = "for n in 1 2 3 4; do (while :; do :; done) & done; wait";
    let begin = Instant::now();
    let ended = provider.exec_collect(&cx(), &id, ExecRequest::shell(spread)).await.unwrap();
    tell(&format!("processor time: {:?} after {} ms", ended.end.cause, begin.elapsed().as_millis()));
    assert_eq!(ended.end.cause, EndCause::Limit(LimitName::CpuTime));
    assert!(begin.elapsed() < Duration::from_secs(20));
    provider.destroy(&cx(), &id).await.unwrap();
}
