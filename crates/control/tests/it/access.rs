//! Keys, scopes, tenants, rates.

use std::time::{Duration, Instant};

use sandstorm_control::server::keys::{Actor, Keys};
use sandstorm_control::server::{KeyForm, NewKey, Quota, Scope, Scopes, Settings};
use sandstorm_types::{ErrorKind, RunSpec, TenantId, Timestamp};

use crate::world::{World, plain, settings, shell, soon_enough};

fn key(scopes: &str, form: KeyForm) -> NewKey {
    let scopes = scopes.parse().unwrap();
    NewKey { tenant: TenantId::LOCAL, name: "key".to_owned(), scopes, form, expires_at: None }
}

async fn wait_until(end: Timestamp) {
    while Timestamp::now() <= end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_first_key_is_made_once_and_opens_everything() {
    let world = World::new().await;
    let first = world.control.first_key().await.unwrap().unwrap();
    assert_eq!(world.control.first_key().await.unwrap(), None);
    let caller = world.control.authenticate(&first).await.unwrap();
    for scope in Scope::ALL {
        caller.require(scope).unwrap();
    }
    assert!(!format!("{caller:?}").contains(&first));
}

#[tokio::test]
async fn every_wrong_key_is_the_same_failure() {
    let world = World::new().await;
    let admin = world.caller();
    let mut wrong = vec![String::new(), "ss_".to_owned(), "x".repeat(1 << 20), "é".repeat(100)];
    for form in [KeyForm::Native, KeyForm::E2b] {
        let (view, good) = world.control.create_key(&admin, key("run", form)).await.unwrap();
        let caller = world.control.authenticate(&good).await.unwrap();
        assert_eq!(caller.key_id(), view.id);
        assert_eq!(caller.require(Scope::Sandbox).unwrap_err().kind(), ErrorKind::Forbidden);
        wrong.extend([
            good.to_uppercase(),
            format!("{good}a"),
            format!(" {good}"),
            good[..good.len() - 1].to_owned(),
        ]);
        // The same id with another secret, and another's secret.
        let other = world.control.create_key(&admin, key("run", form)).await.unwrap().1;
        let half = good.len() - 10;
        wrong.push(format!("{}{}", &good[..half], &other[half..]));
    }
    let mut messages = std::collections::BTreeSet::new();
    for key in &wrong {
        let error = world.control.authenticate(key).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{}", &key[..key.len().min(60)]);
        messages.insert(error.to_string());
    }
    assert_eq!(messages.len(), 1);
}

#[tokio::test]
async fn revoking_and_expiring_work_within_a_second() {
    let world = World::new().await;
    let admin = world.caller();
    let (view, secret) = world.control.create_key(&admin, key("run", KeyForm::Native)).await.unwrap();
    let caller = world.control.authenticate(&secret).await.unwrap();
    assert!(world.control.still_allowed(&caller).await);
    // From outside of the server, as the command line does it.
    let keys = Keys::new(world.store.clone(), world.settings.pepper.clone());
    assert!(keys.revoke(&Actor::command_line(), &view.id).await.unwrap().revoked_at.is_some());
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert_eq!(world.control.authenticate(&secret).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert!(!world.control.still_allowed(&caller).await);
    let ((secret, end), _) = soon_enough(async |span| {
        let end = Timestamp::now().after(span);
        let short = NewKey { expires_at: Some(end), ..key("run", KeyForm::Native) };
        let (_, secret) = world.control.create_key(&admin, short).await.unwrap();
        world.control.authenticate(&secret).await.is_ok().then_some((secret, end))
    })
    .await;
    wait_until(end).await;
    assert!(world.control.authenticate(&secret).await.is_err());
}

#[tokio::test]
async fn a_rotated_key_overlaps_with_its_successor() {
    let world = World::new().await;
    let admin = world.caller();
    let ((old, secret, next, end), _) = soon_enough(async |span| {
        let (old, secret) = world.control.create_key(&admin, key("run,files", KeyForm::E2b)).await.unwrap();
        let (new, next) = world.control.rotate_key(&admin, &old.id, span).await.unwrap();
        let end = Timestamp::now().after(span);
        assert_eq!((&new.name, &new.scopes), (&old.name, &old.scopes));
        assert!(next.starts_with("e2b_"));
        let both = world.control.authenticate(&secret).await.is_ok();
        world.control.authenticate(&next).await.unwrap();
        both.then_some((old, secret, next, end))
    })
    .await;
    wait_until(end).await;
    assert!(world.control.authenticate(&secret).await.is_err());
    world.control.authenticate(&next).await.unwrap();
    // One that has ended has no successor.
    assert_eq!(
        world.control.rotate_key(&admin, &old.id, Duration::ZERO).await.unwrap_err().kind(),
        ErrorKind::Conflict
    );
}

#[tokio::test]
async fn scopes_are_walls() {
    let world = World::new().await;
    let admin = world.caller();
    let sandbox = world.control.create_sandbox(&admin, plain()).await.unwrap().id;
    let made = |scopes: &'static str| {
        let (control, admin) = (world.control.clone(), admin.clone());
        async move {
            let (_, secret) = control.create_key(&admin, key(scopes, KeyForm::Native)).await.unwrap();
            control.authenticate(&secret).await.unwrap()
        }
    };
    let forbidden = |kind: ErrorKind| assert_eq!(kind, ErrorKind::Forbidden);
    let run = made("run").await;
    forbidden(world.control.create_sandbox(&run, plain()).await.unwrap_err().kind());
    forbidden(world.control.exec(&run, sandbox, shell("true")).await.unwrap_err().kind());
    forbidden(world.control.tenants(&run).await.unwrap_err().kind());
    let boxes = made("sandbox").await;
    let path = "/workspace/x".parse().unwrap();
    forbidden(world.control.read_file(&boxes, sandbox, &path, Default::default()).await.unwrap_err().kind());
    forbidden(
        world.control.start_run(&boxes, RunSpec::new("bash".parse().unwrap(), "x")).await.unwrap_err().kind(),
    );
    let operator = made("admin").await;
    forbidden(world.control.sandbox(&operator, sandbox).await.unwrap_err().kind());
    world.control.keys(&operator, None).await.unwrap();
}

#[tokio::test]
async fn no_key_is_in_the_database() {
    let world = World::new().await;
    let secret = world.control.first_key().await.unwrap().unwrap();
    world.control.authenticate(&secret).await.unwrap();
    world.store.close().await;
    let last = secret.splitn(3, '_').last().unwrap().as_bytes();
    for entry in std::fs::read_dir(world.dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(last.len()).any(|part| part == last));
    }
}

/// Nobody who reads the database can make or check a key, nor one who saw others guess the next.
#[tokio::test]
async fn keys_are_random_and_worthless_under_another_secret() {
    let world = World::new().await;
    let admin = world.caller();
    let mut seen = std::collections::BTreeSet::new();
    for form in [KeyForm::Native, KeyForm::E2b] {
        for _ in 0..50 {
            let (view, secret) = world.control.create_key(&admin, key("run", form)).await.unwrap();
            let random = secret.rsplit_once(&view.id).map_or(&secret[4..], |(_, rest)| &rest[1..]);
            // 32 bytes in base64url, or 20 in hexadecimal: at least 128 bits.
            assert!(random.len() >= 40, "{random}");
            // Each half of it is new every time.
            let (first, second) = random.split_at(random.len() / 2);
            for part in [view.id.as_str(), first, second] {
                assert!(seen.insert(part.to_owned()), "{part} came twice");
            }
        }
    }
    let (_, secret) = world.control.create_key(&admin, key("run", KeyForm::Native)).await.unwrap();
    let (_, short) = world.control.create_key(&admin, key("run", KeyForm::E2b)).await.unwrap();
    world.control.authenticate(&secret).await.unwrap();
    let other = Settings { pepper: sandstorm_control::server::Pepper([9; 32]), ..world.settings.clone() };
    let world = World { settings: other, ..world }.restarted().await;
    for key in [secret, short] {
        let refused = world.control.authenticate(&key).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
    }
}

#[tokio::test]
async fn a_key_needs_scopes_and_a_tenant() {
    let world = World::new().await;
    let admin = world.caller();
    let none = NewKey { scopes: Scopes::default(), ..key("run", KeyForm::Native) };
    assert_eq!(world.control.create_key(&admin, none).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    let nobody = NewKey { tenant: TenantId::random(), ..key("run", KeyForm::Native) };
    assert_eq!(world.control.create_key(&admin, nobody).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_tenant_has_its_own_rates() {
    let quota = Quota { requests_per_second: Some(5), ..settings().quota };
    let world = World::with(sandstorm_control::server::Settings { quota, ..settings() }).await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let began = Instant::now();
    let mut counted = 0;
    let error = loop {
        match world.control.count_request(&caller) {
            Ok(()) => counted += 1,
            Err(error) => break error,
        }
    };
    // Those of one second, and as many as came by meanwhile.
    assert!((5..=5 + (began.elapsed().as_millis() * 5).div_ceil(1000)).contains(&counted), "{counted}");
    assert_eq!(error.kind(), ErrorKind::Quota);
    assert!(error.retry_after().is_some());
    world.control.count_request(&stranger).unwrap();
}
