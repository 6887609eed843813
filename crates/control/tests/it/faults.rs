//! A provider that fails, and what it tells of its own accord.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_control::server::{EventBodyView, EventFilter, SandboxQuery, Settings};
use sandstorm_provider::{ListFilter, OpContext, Provider, ProviderEvent};
use sandstorm_store::Decision;
use sandstorm_types::{ByteSize, Enforcement, ErrorKind, Phase, RunSpec, TenantId};

use crate::kernel::KernelProvider;
use crate::world::{PATIENCE, World, eventually, plain, settings, shell};

async fn world() -> (World, Arc<KernelProvider>) {
    let provider = Arc::new(KernelProvider::default());
    // Room for one sandbox only, so that a promise which is not given back is noticed.
    let settings = Settings {
        admission_memory: ByteSize::mib(64),
        admission_wait: Duration::from_millis(100),
        ..settings()
    };
    (World::on(Arc::clone(&provider) as _, settings).await, provider)
}

#[tokio::test]
async fn a_creation_that_fails_is_failed_and_gives_everything_back() {
    let (world, provider) = world().await;
    let caller = world.caller();
    provider.faults.create.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let error = world.control.create_sandbox(&caller, plain()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider);
    }
    let query = SandboxQuery { include_ended: true, ..SandboxQuery::default() };
    let all = world.control.sandboxes(&caller, query).await.unwrap().items;
    assert_eq!(all.len(), 3);
    for view in all {
        assert_eq!(view.phase, Phase::Failed);
        assert_eq!(view.reason.as_deref(), Some("it could not be made: a fault was asked for"));
    }
    // A name is free again, too.
    assert!(world.control.name_sandbox(&caller, "session", "a", plain()).await.is_err());
    provider.faults.create.store(false, Ordering::SeqCst);
    assert!(world.control.name_sandbox(&caller, "session", "a", plain()).await.unwrap().1);
}

#[tokio::test]
async fn a_run_whose_sandbox_was_lost_before_it_began_has_another() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let run = || {
        let spec = RunSpec::new("bash".parse().unwrap(), "printed");
        let spec =
            RunSpec { enforcement: Some(Enforcement::BestEffort), stdin: "given".to_owned().into(), ..spec };
        world.control.run(&caller, spec)
    };
    *provider.faults.lost.lock().unwrap() = (2, true);
    assert_eq!(run().await.unwrap().stdout, "printed");
    // All that wait may be dead: the last one did not.
    assert_eq!(*provider.faults.pooled.lock().unwrap(), [true, true, false]);
    // Not for ever, and not where the program may have begun.
    for (times, proven) in [(3, true), (1, false)] {
        *provider.faults.lost.lock().unwrap() = (times, proven);
        assert_eq!(run().await.unwrap_err().kind(), ErrorKind::Provider);
        assert_eq!(provider.faults.lost.lock().unwrap().0, 0);
    }
    eventually("no sandbox is left", || async {
        let cx = OpContext::new(TenantId::LOCAL);
        provider.list(&cx, ListFilter::default()).count().await == 0
    })
    .await;
}

/// Its sandbox does not come back, and its caller hears what can be done about that.
#[tokio::test]
async fn a_program_that_is_lost_with_its_sandbox_says_what_to_do() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let attached = world.control.exec(&caller, id, shell("sleep 60")).await.unwrap();
    provider.lose(&id, "Gone");
    let lost = world.control.finish(attached).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Provider);
    assert!(lost.message().contains("another one has to be made"), "{lost}");
}

/// The same where all that was left of the sandbox is removed before anybody follows the program.
#[tokio::test]
async fn a_program_that_nobody_could_follow_any_more_says_what_to_do() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    provider.faults.vanish.store(true, Ordering::SeqCst);
    let lost = match world.control.exec(&caller, id, shell("sleep 60")).await {
        Ok(attached) => world.control.finish(attached).await.unwrap_err(),
        Err(error) => error,
    };
    provider.open_gate();
    assert_eq!(lost.kind(), ErrorKind::Provider, "{lost}");
    assert!(lost.message().contains("another one has to be made"), "{lost}");
}

#[tokio::test]
async fn an_end_that_fails_is_begun_and_can_be_finished() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    provider.faults.destroy.store(true, Ordering::SeqCst);
    assert_eq!(world.control.delete_sandbox(&caller, id).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(world.control.sandbox(&caller, id).await.unwrap().phase, Phase::Terminating);
    let refused = world.control.exec(&caller, id, shell("true")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    // Its memory is still taken.
    assert_eq!(world.control.create_sandbox(&caller, plain()).await.unwrap_err().kind(), ErrorKind::Capacity);
    provider.faults.destroy.store(false, Ordering::SeqCst);
    world.control.delete_sandbox(&caller, id).await.unwrap();
    assert_eq!(world.control.sandbox(&caller, id).await.unwrap().phase, Phase::Terminated);
    world.control.create_sandbox(&caller, plain()).await.unwrap();
}

#[tokio::test]
async fn a_pause_that_fails_leaves_the_sandbox_as_it_is() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    provider.faults.transition.store(true, Ordering::SeqCst);
    assert_eq!(world.control.pause_sandbox(&caller, id).await.unwrap_err().kind(), ErrorKind::Provider);
    assert_eq!(world.control.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
    let attached = world.control.exec(&caller, id, shell("echo here")).await.unwrap();
    assert_eq!(world.control.finish(attached).await.unwrap().stdout, "here\n");
    provider.faults.transition.store(false, Ordering::SeqCst);
    assert_eq!(world.control.pause_sandbox(&caller, id).await.unwrap().phase, Phase::Paused);
}

#[tokio::test]
async fn refused_connections_are_events_and_records_at_a_bounded_rate() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let filter = EventFilter { sandbox: Some(id), after: None };
    let mut events = world.control.events(&caller, filter).await.unwrap();
    for _ in 0..500 {
        let (destination, reason) = ("evil.test:443".to_owned(), "not\u{1b}[2J on the list".to_owned());
        provider.tell(ProviderEvent::Denied { sandbox: id, destination, reason });
    }
    let (mut heard, began) = (0, Instant::now());
    let denied = async || {
        let audit = world.store.audit(Some(TenantId::LOCAL), 0, 1000).await.unwrap();
        audit.iter().filter(|row| row.audit.decision == Decision::Denied).count()
    };
    // Each has its record. It is written a moment after the event is told.
    while heard == 0 || denied().await != heard {
        assert!(began.elapsed() < PATIENCE, "{heard} heard, {} recorded", denied().await);
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(500), events.next()).await {
            let EventBodyView::Denied { destination, reason } = event.body else { panic!("{event:?}") };
            assert_eq!((destination.as_str(), reason.as_str()), ("evil.test:443", "not[2J on the list"));
            heard += 1;
        }
    }
    // Five in a second, in as many seconds as it took: those in which it began and ended count whole.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!(heard <= 5 * seconds && heard < 500, "{heard} in {seconds} seconds");
}

#[tokio::test]
async fn after_missed_events_the_lost_are_found() {
    let (world, provider) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    provider.destroy(&OpContext::new(TenantId::LOCAL), &id).await.unwrap();
    assert_eq!(world.control.sandbox(&caller, id).await.unwrap().phase, Phase::Ready);
    provider.tell(ProviderEvent::Lagged);
    eventually("it failed", || async {
        world.control.sandbox(&caller, id).await.unwrap().phase == Phase::Failed
    })
    .await;
}

#[tokio::test]
async fn what_sandboxes_use_is_sampled_and_summed_up() {
    let (world, _) = world().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let attached = world.control.exec(&caller, id, shell("true")).await.unwrap();
    world.control.finish(attached).await.unwrap();
    let mut samples = Vec::new();
    for _ in 0..600 {
        samples = world.control.metrics(&caller, id, None, None).await.unwrap();
        if !samples.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!samples.is_empty());
    let usage = world.control.usage(&caller).await.unwrap();
    assert_eq!((usage.sandboxes, usage.sandboxes_created, usage.execs), (1, 1, 1));
    assert_eq!(usage.memory_bytes, ByteSize::mib(64).as_u64());
    // A sample can be seen a moment before it is added up.
    eventually("it is added up", || async {
        world.control.usage(&caller).await.unwrap().memory_mib_seconds >= 64 * 4
    })
    .await;
    world.control.delete_sandbox(&caller, id).await.unwrap();
    assert_eq!(world.control.usage(&caller).await.unwrap().sandboxes, 0);
}
