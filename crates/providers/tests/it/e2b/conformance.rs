//! The adapter keeps the contract of every provider.

use sandstorm_provider::conformance::{self, Outcome};
use sandstorm_provider::layers::CapabilityCheck;
use sandstorm_provider::{CreateOptions, ExecRequest, ExecSignal, HostMount, Provider};
use sandstorm_providers::e2b::{E2bProvider, E2bTemplate};
use sandstorm_types::{ByteSize, ErrorKind, NetworkPolicy, Retry, SandboxSpec, Template};

use super::world::{adapter, config, world};
use crate::world::{cx, sandbox, spec};

/// What the API cannot carry, or does not limit.
const UNCLAIMED: &str = include_str!("unclaimed.txt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes() {
    let world = world().await;
    let report = conformance::run(&adapter(&world).await).await;
    assert!(report.passed(), "{report}");
    // A new skip would be a hole.
    let skipped: Vec<_> = report
        .cases
        .iter()
        .filter(|case| matches!(case.outcome, Outcome::Skipped(_)))
        .map(|case| format!("{}/{}", case.suite, case.name))
        .collect();
    assert_eq!(skipped, UNCLAIMED.lines().collect::<Vec<_>>());
    assert_eq!(world.alive().await, 0, "sandboxes are left on the server");
}

#[tokio::test]
async fn what_cannot_be_had_is_refused_and_nothing_is_made() {
    let world = world().await;
    let adapter = adapter(&world).await;
    let mount = HostMount { source: "/opt".into(), target: "/opt".into() };
    let mounted = CreateOptions { mounts: vec![mount], ..CreateOptions::default() };
    let error = adapter.create(&cx(), &spec(), mounted).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere));
    assert!(error.is_not_started() && error.reasons()[0].feature == "mounts", "{error}");
    let features = |spec: &SandboxSpec| -> Vec<String> {
        let unmet = adapter.admits(spec).err().unwrap_or_default();
        unmet.into_iter().map(|unmet| unmet.feature).collect()
    };
    let image = SandboxSpec { template: Template::Image("debian".to_owned()), ..spec() };
    assert_eq!(features(&image), ["template_image", "template"]);
    let mut large = spec();
    large.limits.memory = ByteSize::gib(64);
    assert_eq!(features(&large), ["max_memory", "max_memory"]);
    let narrow = NetworkPolicy::Allow(
        sandstorm_types::AllowList::new(vec!["example.com:22".parse().unwrap()]).unwrap(),
    );
    assert_eq!(features(&SandboxSpec { network: narrow, ..spec() }), ["network_allow"]);
    let strict = SandboxSpec::default();
    assert!(features(&strict).contains(&"memory".to_owned()), "it does not limit memory as asked for");
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn templates_are_those_of_the_configuration_and_keep_our_names() {
    let world = world().await;
    let mut config = config(&world, world.address);
    let mut large = E2bTemplate::new("code-interpreter-v1");
    large.memory = ByteSize::gib(4);
    config.templates.insert("python:3.12".to_owned(), large);
    config.templates.insert("gone".to_owned(), E2bTemplate::new("no-such-template"));
    let adapter = E2bProvider::connect(config).await.unwrap();
    let image = |name: &str| SandboxSpec { template: Template::Image(name.to_owned()), ..spec() };
    let mut python = image("python:3.12");
    python.limits.memory = ByteSize::gib(2);
    let made = adapter.create(&cx(), &python, CreateOptions::default()).await.unwrap();
    assert_eq!(made.template, python.template, "it has our name");
    assert_eq!(adapter.get(&cx(), &made.id).await.unwrap().template, python.template);
    let there = world.client().sandboxes(&Default::default()).await.unwrap().items.remove(0);
    let there = serde_json::to_value(&there).unwrap();
    assert_eq!(there["labels"]["sandstorm.e2b/template"], "code-interpreter-v1", "and theirs: {there}");
    let mut host = spec();
    host.limits.memory = ByteSize::gib(2);
    let unmet = adapter.admits(&host).unwrap_err();
    assert_eq!(unmet[0].why, "the template that this one is there is smaller");
    assert_eq!(adapter.admits(&image("debian")).unwrap_err()[0].feature, "template");
    let error = adapter.create(&cx(), &image("gone"), CreateOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere), "{error}");
}

#[tokio::test]
async fn other_signals_than_two_are_refused() {
    let world = world().await;
    let adapter = std::sync::Arc::new(adapter(&world).await);
    let id = sandbox(&*adapter).await;
    let exec = adapter.exec(&cx(), &id, ExecRequest::shell("sleep 30")).await.unwrap();
    let error = adapter.signal(&cx(), &exec.id, ExecSignal::Interrupt).await.unwrap_err();
    assert_eq!(error.reasons()[0].feature, "exec_signals", "{error}");
    let checked = CapabilityCheck::new(adapter.clone());
    assert!(checked.signal(&cx(), &exec.id, ExecSignal::Interrupt).await.is_err());
    adapter.signal(&cx(), &exec.id, ExecSignal::Terminate).await.unwrap();
    let end = exec.collect().await.unwrap().end;
    assert_eq!(end.status, sandstorm_provider::ExecStatus::Signal(15));
    assert_eq!(end.cause, sandstorm_provider::EndCause::Caller);
}
