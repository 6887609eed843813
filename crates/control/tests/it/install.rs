//! Packages for sandboxes that live, as far as a provider without package managers can.

use sandstorm_control::server::{NewInstall, NewSandbox, Quota, Settings};
use sandstorm_types::{ByteSize, ErrorKind, LimitsPatch, MilliCpus, Template};

use crate::world::{World, plain, settings};

fn of(manager: &str) -> NewInstall {
    NewInstall { manager: manager.to_owned(), packages: vec!["some-package".parse().unwrap()] }
}

#[tokio::test]
async fn it_is_for_the_owner_of_a_ready_sandbox_of_this_machine() {
    let world = World::installing(settings()).await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let foreign = world.control.install(&stranger, id, of("npm")).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::NotFound);
    for (new, told) in [
        (of("gem"), "use one of npm, pip"),
        (NewInstall { packages: Vec::new(), ..of("npm") }, "1 to 100 packages"),
        (NewInstall { packages: vec!["x".parse().unwrap(); 101], ..of("npm") }, "1 to 100 packages"),
        // What stands for Python here is called `cat`.
        (of("pip"), "does not say its version"),
    ] {
        let refused = world.control.install(&caller, id, new).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        assert!(refused.message().contains(told), "{refused}");
    }
    let image = NewSandbox { template: Template::Image("debian:12".to_owned()), ..plain() };
    if let Ok(image) = world.control.create_sandbox(&caller, image).await {
        let refused = world.control.install(&caller, image.id, of("npm")).await.unwrap_err();
        assert_eq!(refused.reasons()[0].feature, "install", "{refused}");
    }
    world.control.pause_sandbox(&caller, id).await.unwrap();
    let asleep = world.control.install(&caller, id, of("npm")).await.unwrap_err();
    assert_eq!(asleep.kind(), ErrorKind::Conflict);
    let none = World::new().await;
    let id = none.control.create_sandbox(&none.caller(), plain()).await.unwrap().id;
    let refused = none.control.install(&none.caller(), id, of("npm")).await.unwrap_err();
    assert!(refused.message().contains("installs no packages"), "{refused}");
}

#[tokio::test]
async fn it_counts_beside_the_tenants_sandboxes_and_gives_back_what_it_held() {
    let base = settings();
    let quota = Quota { memory_bytes: 1 << 30, cpu_milli: 4000, runs_per_minute: Some(1), ..base.quota };
    let world = World::installing(Settings { quota, local_quota: Some(quota), ..base }).await;
    let caller = world.caller();
    let of_size = |mib| {
        let limits = LimitsPatch {
            memory: Some(ByteSize::mib(mib)),
            cpus: Some(MilliCpus::new(500)),
            ..LimitsPatch::default()
        };
        NewSandbox { limits, ..plain() }
    };
    let small = world.control.create_sandbox(&caller, of_size(256)).await.unwrap().id;
    // There is room to begin; that the provider in memory has no npm is another matter.
    let failed = world.control.install(&caller, small, of("npm")).await.unwrap_err();
    assert_ne!(failed.kind(), ErrorKind::Quota, "{failed}");
    let often = world.control.install(&caller, small, of("npm")).await.unwrap_err();
    assert!(often.message().contains("runs per minute"), "{often}");
    let large = world.control.create_sandbox(&caller, of_size(512)).await.unwrap().id;
    let refused = world.control.install(&caller, large, of("npm")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Quota, "{refused}");
    assert!(refused.message().contains("leaves no room"), "{refused}");
    world.control.delete_sandbox(&caller, large).await.unwrap();
    // What it held is free again: a sandbox that takes all the rest is made.
    world.control.create_sandbox(&caller, of_size(768)).await.unwrap();
}
