//! Tokens for one sandbox, and visitors without any: what they open, and for how long.

use std::time::Duration;

use futures_util::StreamExt;
use ring::hmac;
use sandstorm_control::server::{
    Caller, CostQuery, EventFilter, KeyForm, NewFork, NewKey, NewSandbox, Quota, SandboxQuery, Settings,
    TokenKind, Verb,
};
use sandstorm_provider::{ByteStream, Error, FileOp, WatchOptions};
use sandstorm_types::{ErrorKind, Labels, NetworkPolicy, RunSpec, SandboxId, TenantId, Timestamp};

use crate::world::{World, plain, settings, shell};

const INSIDE: TokenKind =
    TokenKind { purpose: "inside", verbs: &[Verb::Look, Verb::Wake, Verb::Run, Verb::Files] };
const PORTS: TokenKind = TokenKind { purpose: "ports", verbs: &[Verb::Look, Verb::Connect] };

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("it is refused").kind()
}

/// A key of the local tenant with these scopes: its id, and who presents it.
async fn key(world: &World, scopes: &str) -> (String, Caller) {
    let scopes = scopes.parse().unwrap();
    let new = NewKey {
        tenant: TenantId::LOCAL,
        name: "key".to_owned(),
        scopes,
        form: KeyForm::Native,
        expires_at: None,
    };
    let (view, secret) = world.control.create_key(&world.caller(), new).await.unwrap();
    (view.id, world.control.authenticate(&secret).await.unwrap())
}

async fn public(world: &World, public: Option<bool>) -> SandboxId {
    let labels = match public {
        Some(public) => Labels::default().with_public_ports(public).unwrap(),
        None => Labels::default(),
    };
    world.control.create_sandbox(&world.caller(), NewSandbox { labels, ..plain() }).await.unwrap().id
}

#[tokio::test]
async fn a_token_ends_with_its_key() {
    let world = World::new().await;
    let control = &world.control;
    let (id, owner) = key(&world, "sandbox,files").await;
    let (_, other) = key(&world, "sandbox,files").await;
    let sandbox = control.create_sandbox(&owner, plain()).await.unwrap().id;
    let token = control.sandbox_token(&owner, sandbox, INSIDE).unwrap();
    let others = control.sandbox_token(&other, sandbox, INSIDE).unwrap();
    assert_ne!(token, others);
    let bearer = control.authenticate_sandbox(sandbox, INSIDE, &token).await.unwrap();
    assert_eq!((bearer.tenant(), bearer.key_id()), (TenantId::LOCAL, id.as_str()));
    assert!(control.still_allowed(&bearer).await);
    assert_eq!(control.authenticate_token(INSIDE, &token).await.unwrap().0, sandbox);
    let signed = control.authenticate_signature(Some(sandbox), INSIDE, |known| known == token).await;
    assert_eq!(signed.unwrap().0, sandbox);
    let searched = control.authenticate_signature(None, INSIDE, |known| known == token).await;
    assert_eq!(searched.unwrap().0, sandbox);
    control.revoke_key(&world.caller(), &id).await.unwrap();
    assert_eq!(kind(control.authenticate_sandbox(sandbox, INSIDE, &token).await), ErrorKind::Unauthenticated);
    assert_eq!(kind(control.authenticate_token(INSIDE, &token).await), ErrorKind::Unauthenticated);
    for named in [Some(sandbox), None] {
        let signed = control.authenticate_signature(named, INSIDE, |known| known == token).await;
        assert_eq!(kind(signed), ErrorKind::Unauthenticated, "{named:?}");
    }
    assert!(!control.still_allowed(&bearer).await);
    // That of another key goes on.
    let bearer = control.authenticate_sandbox(sandbox, INSIDE, &others).await.unwrap();
    assert!(control.still_allowed(&bearer).await);
    control.delete_sandbox(&owner, sandbox).await.unwrap();
    assert!(!control.still_allowed(&bearer).await);
    assert_eq!(kind(control.authenticate_sandbox(sandbox, INSIDE, &others).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_token_ends_with_its_time() {
    let rules = settings();
    let pepper = rules.pepper.clone();
    let world = World::with(Settings { longest_lifetime: Duration::from_secs(2 * 86_400), ..rules }).await;
    let control = &world.control;
    let (id, owner) = key(&world, "sandbox,files").await;
    let sandbox = control.create_sandbox(&owner, plain()).await.unwrap().id;
    // As the server makes it, on another day.
    let of = |day: i64| {
        let plain = format!("{}-{id}-{day:x}", sandbox.bare());
        let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &pepper.0));
        mac.update(format!("sandstorm sandbox token\0{plain}\0inside").as_bytes());
        let mac = mac.sign();
        let hex: String = mac.as_ref()[..20].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{plain}-{hex}")
    };
    let day = || Timestamp::now().millis().div_euclid(86_400_000);
    // Midnight may come in between.
    let today = loop {
        let today = day();
        if control.sandbox_token(&owner, sandbox, INSIDE).unwrap() == of(today) && day() == today {
            break today;
        }
    };
    for (ago, good) in [(0, true), (2, true), (4, false), (400, false), (-2, false)] {
        let token = of(today - ago);
        let opened = control.authenticate_sandbox(sandbox, INSIDE, &token).await;
        assert_eq!(opened.is_ok(), good, "{ago} days ago");
        let signed = control.authenticate_signature(Some(sandbox), INSIDE, |known| known == token).await;
        assert_eq!(signed.is_ok(), good, "signed with one of {ago} days ago");
    }
}

/// Everything that a tenant can do, with the token of one of its sandboxes.
#[tokio::test]
async fn a_token_opens_one_sandbox_for_its_verbs_and_nothing_else() {
    let world = World::new().await;
    let control = &world.control;
    let (_, owner) = key(&world, "run,sandbox,files,admin").await;
    let sandbox = control.create_sandbox(&owner, plain()).await.unwrap().id;
    let other = control.create_sandbox(&owner, plain()).await.unwrap().id;
    let token = control.sandbox_token(&owner, sandbox, INSIDE).unwrap();
    let bearer = control.authenticate_sandbox(sandbox, INSIDE, &token).await.unwrap();
    let traffic = control.sandbox_token(&owner, sandbox, PORTS).unwrap();
    let traffic = control.authenticate_sandbox(sandbox, PORTS, &traffic).await.unwrap();
    let path: sandstorm_types::GuestPath = "/workspace/x".parse().unwrap();
    // What it is for.
    control.sandbox(&bearer, sandbox).await.unwrap();
    control.resume_sandbox(&bearer, sandbox).await.unwrap();
    control.write_file(&bearer, sandbox, &path, ByteStream::from(bytes::Bytes::from("x"))).await.unwrap();
    control.exec_to_end(&bearer, sandbox, shell("true")).await.unwrap();
    control.sandbox(&traffic, sandbox).await.unwrap();
    // Another sandbox of the same tenant is as good as none.
    let none = ErrorKind::NotFound;
    assert_eq!(kind(control.sandbox(&bearer, other).await), none);
    assert_eq!(kind(control.resume_sandbox(&bearer, other).await), none);
    assert_eq!(kind(control.exec(&bearer, other, shell("true")).await), none);
    assert_eq!(kind(control.execs(&bearer, other, false).await), none);
    assert_eq!(kind(control.files(&bearer, other, FileOp::Stat { path: path.clone() }).await), none);
    assert_eq!(kind(control.read_file(&bearer, other, &path, Default::default()).await), none);
    let watch = WatchOptions { recursive: false };
    assert_eq!(control.watch(&bearer, other, &path, watch).await.err().unwrap().kind(), none);
    assert_eq!(kind(control.contexts(&bearer, other).await), none);
    assert_eq!(kind(control.connect(&traffic, other, 80).await), none);
    assert_eq!(kind(control.sandbox_usage(&bearer, other).await), none);
    // Nor does it open more of its own than it is for, or anything of the tenant.
    let no = ErrorKind::Forbidden;
    assert_eq!(kind(control.connect(&bearer, sandbox, 80).await), no);
    assert_eq!(kind(control.exec(&traffic, sandbox, shell("true")).await), no);
    assert_eq!(kind(control.files(&traffic, sandbox, FileOp::Stat { path: path.clone() }).await), no);
    assert_eq!(kind(control.resume_sandbox(&traffic, sandbox).await), no);
    for caller in [&bearer, &traffic] {
        assert_eq!(kind(control.create_sandbox(caller, plain()).await), no);
        assert_eq!(kind(control.sandboxes(caller, SandboxQuery::default()).await), no);
        assert_eq!(kind(control.delete_sandbox(caller, sandbox).await), no);
        assert_eq!(kind(control.extend_sandbox(caller, sandbox, Duration::from_secs(60)).await), no);
        assert_eq!(kind(control.pause_sandbox(caller, sandbox).await), no);
        assert_eq!(kind(control.set_network(caller, sandbox, NetworkPolicy::Open).await), no);
        assert_eq!(kind(control.set_public_ports(caller, sandbox, true).await), no);
        assert_eq!(kind(control.fork_sandbox(caller, sandbox, NewFork::default()).await), no);
        assert_eq!(kind(control.snapshots(caller, Default::default()).await), no);
        let filter = EventFilter { sandbox: Some(sandbox), after: None };
        assert_eq!(control.events(caller, filter).await.err().unwrap().kind(), no);
        assert_eq!(kind(control.usage(caller).await), no);
        assert_eq!(kind(control.costs(caller, CostQuery::default()).await), no);
        assert_eq!(kind(control.run(caller, RunSpec::new("bash".parse().unwrap(), "x")).await), no);
        assert_eq!(kind(control.runs(caller, Default::default()).await), no);
        assert_eq!(kind(control.providers(caller).await), no);
        assert_eq!(kind(control.keys(caller, None).await), no);
        assert_eq!(kind(control.tenants(caller).await), no);
        assert_eq!(kind(control.audit(caller, None, 0, 1).await), no);
        assert_eq!(kind(control.named_sandboxes(caller, "session").await), no);
        // A token does not beget tokens.
        assert_eq!(kind(control.sandbox_token(caller, sandbox, INSIDE)), no);
    }
}

#[tokio::test]
async fn a_token_opens_no_more_than_its_key() {
    let world = World::new().await;
    let control = &world.control;
    let (_, owner) = key(&world, "sandbox").await;
    let sandbox = control.create_sandbox(&owner, plain()).await.unwrap().id;
    let token = control.sandbox_token(&owner, sandbox, INSIDE).unwrap();
    let bearer = control.authenticate_sandbox(sandbox, INSIDE, &token).await.unwrap();
    control.exec_to_end(&bearer, sandbox, shell("true")).await.unwrap();
    let path = "/workspace/x".parse().unwrap();
    assert_eq!(
        kind(control.read_file(&bearer, sandbox, &path, Default::default()).await),
        ErrorKind::Forbidden
    );
}

/// A server with keys does not take what it gave out while it had none.
#[tokio::test]
async fn the_developers_tokens_are_good_without_keys_only() {
    for keyless in [true, false] {
        let world = World::with(Settings { keyless, ..settings() }).await;
        let sandbox = public(&world, None).await;
        let token = world.control.sandbox_token(&world.caller(), sandbox, INSIDE).unwrap();
        let opened = world.control.authenticate_sandbox(sandbox, INSIDE, &token).await;
        assert_eq!(opened.is_ok(), keyless);
        let signed = world.control.authenticate_signature(None, INSIDE, |known| known == token).await;
        assert_eq!(signed.is_ok(), keyless);
    }
}

#[tokio::test]
async fn visitors_spend_nothing_of_their_owners_rate() {
    let quota = Quota { requests_per_second: Some(5), ..settings().quota };
    let world = World::with(Settings { quota, ..settings() }).await;
    let (control, owner) = (&world.control, world.caller());
    let visitor = control.visitor(public(&world, Some(true)).await).unwrap();
    let refused = (0..100_000).find_map(|_| control.count_request(&visitor).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Quota);
    assert!(refused.retry_after().is_some());
    for _ in 0..5 {
        control.count_request(&owner).unwrap();
    }
}

#[tokio::test]
async fn visitors_come_to_public_ports_only_and_leave_when_they_are_closed() {
    let world = World::new().await;
    let control = &world.control;
    let owner = world.caller();
    let (silent, open, closed) =
        (public(&world, None).await, public(&world, Some(true)).await, public(&world, Some(false)).await);
    assert_eq!(kind(control.visitor(silent)), ErrorKind::NotFound);
    assert_eq!(kind(control.visitor(SandboxId::random())), ErrorKind::NotFound);
    assert_eq!(kind(control.visitor(closed)), ErrorKind::Forbidden);
    let visitor = control.visitor(open).unwrap();
    control.sandbox(&visitor, open).await.unwrap();
    assert_eq!(kind(control.sandbox(&visitor, silent).await), ErrorKind::NotFound);
    assert_eq!(kind(control.exec(&visitor, open, shell("true")).await), ErrorKind::Forbidden);
    let path = "/workspace/x".parse().unwrap();
    assert_eq!(
        kind(control.read_file(&visitor, open, &path, Default::default()).await),
        ErrorKind::Forbidden
    );
    // Nothing listens there, but it was asked for.
    assert!(!matches!(
        kind(control.connect(&visitor, open, 9).await),
        ErrorKind::Forbidden | ErrorKind::NotFound
    ));
    assert!(control.still_allowed(&visitor).await);
    control.set_public_ports(&owner, open, false).await.unwrap();
    assert!(!control.still_allowed(&visitor).await);
    tokio::time::timeout(Duration::from_secs(45), control.clone().revoked(visitor)).await.unwrap();
    assert_eq!(kind(control.visitor(open)), ErrorKind::Forbidden);
    control.set_public_ports(&owner, silent, true).await.unwrap();
    control.visitor(silent).unwrap();
    // It is on record, and survives the server.
    let world = world.restarted().await;
    world.control.visitor(silent).unwrap();
    assert_eq!(kind(world.control.visitor(open)), ErrorKind::Forbidden);
    let stranger = world.stranger().await;
    assert_eq!(kind(world.control.set_public_ports(&stranger, silent, false).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_a_token_opened_ends_with_its_key() {
    let world = World::new().await;
    let control = &world.control;
    let (id, owner) = key(&world, "sandbox,files").await;
    let sandbox = control.create_sandbox(&owner, plain()).await.unwrap().id;
    let token = control.sandbox_token(&owner, sandbox, INSIDE).unwrap();
    let bearer = control.authenticate_sandbox(sandbox, INSIDE, &token).await.unwrap();
    let attached = control.exec(&bearer, sandbox, shell("sleep 1000")).await.unwrap();
    let events = attached.events.take_until(Box::pin(control.clone().revoked(bearer)));
    control.revoke_key(&world.caller(), &id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(45), events.count()).await.unwrap();
}

/// Such a signature is compared with the tokens of every sandbox, so one is looked for at a time, and a waiting caller is
/// told to come back.
#[tokio::test]
async fn signatures_that_name_no_sandbox_take_turns() {
    let world = World::new().await;
    let control = &world.control;
    let sandbox = public(&world, None).await;
    let token = control.sandbox_token(&world.caller(), sandbox, INSIDE).unwrap();
    let (at_it, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (first, known_first, runtime) = (control.clone(), token.clone(), tokio::runtime::Handle::current());
    let searching = tokio::task::spawn_blocking(move || {
        let matches = |known: &str| {
            let _ = at_it.send(());
            // Until the sender is dropped.
            let _ = held.recv();
            known == known_first
        };
        runtime.block_on(first.authenticate_signature(None, INSIDE, matches))
    });
    begins.recv().await.unwrap();
    let refused = control.authenticate_signature(None, INSIDE, |known| known == token).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    assert!(refused.retry_after().is_some());
    // A signature that names its sandbox does not wait for the others.
    let named = control.authenticate_signature(Some(sandbox), INSIDE, |known| known == token).await;
    assert_eq!(named.unwrap().0, sandbox);
    drop(let_go);
    assert_eq!(searching.await.unwrap().unwrap().0, sandbox);
    let next = control.authenticate_signature(None, INSIDE, |known| known == token).await;
    assert_eq!(next.unwrap().0, sandbox);
}
