//! A proxy on the host for a sandbox in a network namespace of its own, as root and as an ordinary user.
//!
//! The sandbox is this binary, started again under `unshare`: it captures its network, sends the sockets over and then
//! does as it is told. See `payload`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "the tests start themselves again in fresh namespaces")]

#[path = "captured/payload.rs"]
mod payload;
#[path = "captured/world.rs"]
mod world;

use std::net::SocketAddr;
use std::time::Duration;

use sandstorm_egress::{Limits, Options, Refusal};
use sandstorm_types::NetworkPolicy;
use world::{Sandbox, Who, policy};

const PUBLIC: &str = "93.184.216.34";

/// The sandbox's way in: nothing to do unless a parent asked for it.
#[test]
fn inside() {
    if std::env::var(world::MARK).is_ok() {
        payload::run();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_name_is_reached_and_nothing_else() {
    for who in Who::all() {
        let mut sandbox = Sandbox::start(who, policy(&["example.com:8080"]), Options::default()).await;
        sandbox.world.resolves("example.com.", PUBLIC);

        let address = sandbox.ask("resolve example.com").unwrap();
        assert!(address.starts_with("198.1"), "{address}");
        assert_eq!(sandbox.ask(&format!("tcp {address}:8080 hello")).unwrap(), "echo:hello");
        assert_eq!(sandbox.world.dialled(), [SocketAddr::new(PUBLIC.parse().unwrap(), 8080)]);
        assert_eq!(sandbox.world.asked(), ["example.com."]);

        assert_eq!(sandbox.ask("resolve evil.example").unwrap_err(), "REFUSED");
        assert_eq!(sandbox.ask("resolve stolen-data.example.com").unwrap_err(), "REFUSED");
        let host_server = sandbox.world.server;
        for target in [
            format!("{PUBLIC}:80"),
            format!("{address}:22"),
            "8.8.8.8:53000".to_owned(),
            "169.254.169.254:80".to_owned(),
            "10.0.0.1:80".to_owned(),
            "192.168.0.1:443".to_owned(),
            "198.18.77.77:80".to_owned(),
            "[2606:4700::1111]:443".to_owned(),
            "[fd00:ec2::254]:80".to_owned(),
            // The host's own loopback is another one than the sandbox's.
            host_server.to_string(),
        ] {
            let outcome = sandbox.ask(&format!("tcp {target} x"));
            assert!(outcome.is_err(), "{target}: {outcome:?}");
        }
        assert!(sandbox.ask("udp 8.8.8.8:443").is_err());
        assert_eq!(sandbox.world.dialled().len(), 1);
        assert_eq!(sandbox.world.asked().len(), 1);

        let reasons: Vec<_> = sandbox.proxy.refused().iter().map(|refused| refused.reason).collect();
        for reason in [Refusal::NotAllowed, Refusal::UnknownAddress] {
            assert!(reasons.contains(&reason), "{reasons:?}");
        }
        let counters = sandbox.proxy.counters();
        assert_eq!((counters.connected, counters.queries_answered, counters.queries_refused), (1, 1, 2));
        sandbox.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_policy_reaches_public_addresses_only() {
    for who in Who::all() {
        let mut sandbox = Sandbox::start(who, NetworkPolicy::Open, Options::default()).await;
        assert_eq!(sandbox.ask(&format!("tcp {PUBLIC}:8080 v4")).unwrap(), "echo:v4");
        assert_eq!(sandbox.ask("tcp [2606:4700::1111]:8080 v6").unwrap(), "echo:v6");
        for target in ["169.254.169.254:80", "10.0.0.1:80", "[fe80::1]:80", "[64:ff9b::7f00:1]:80"] {
            assert!(sandbox.ask(&format!("tcp {target} x")).is_err(), "{target}");
        }
        assert_eq!(sandbox.world.dialled().len(), 2);
        sandbox.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_takes_no_more_than_its_share() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let rules = policy(&[&format!("ip:{PUBLIC}:80")]);
    let mut sandbox = Sandbox::start(Who::Ordinary, rules, options).await;
    sandbox.ask(&format!("hold {PUBLIC}:80 100")).unwrap();
    sandbox.world.until(|world| world.alive() == 8).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((sandbox.world.alive(), sandbox.world.dialled().len()), (8, 8));
    sandbox.ask("release").unwrap();
    // Those that waited get their turn once the others are gone.
    sandbox.world.until(|world| world.dialled().len() > 8 && world.alive() == 0).await;
    sandbox.end().await;
}

/// The kernel's table of connections is charged to nobody, so it must not grow with what a sandbox tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_connects_cost_the_host_little() {
    let rules = policy(&[&format!("ip:{PUBLIC}:8080")]);
    let mut sandbox = Sandbox::start(Who::Ordinary, rules, Options::default()).await;
    let began = std::time::Instant::now();
    let tracked: u64 = sandbox.ask(&format!("flood {PUBLIC}:8080 100000")).unwrap().parse().unwrap();
    assert!(tracked > 500, "only {tracked} connections were begun");
    let allowance = 1000 + 200 * (began.elapsed().as_secs() + 1);
    assert!(tracked <= allowance, "{tracked} connections are tracked, {allowance} at most were let start");
    let dialled = sandbox.world.dialled().len() as u64;
    assert!(dialled <= 400 + 100 * (began.elapsed().as_secs() + 1), "{dialled} were dialled");
    // The flood took only its own share: another sandbox is served meanwhile.
    let other = policy(&[&format!("ip:{PUBLIC}:8080")]);
    let mut neighbour = Sandbox::start(Who::Ordinary, other, Options::default()).await;
    assert_eq!(neighbour.ask(&format!("tcp {PUBLIC}:8080 hello")).unwrap(), "echo:hello");
    neighbour.end().await;
    sandbox.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_are_told_as_they_happen() {
    let (sender, mut denials) = tokio::sync::mpsc::channel(16);
    let options = Options { denials: Some(sender), ..Options::default() };
    let mut sandbox = Sandbox::start(Who::Ordinary, policy(&["example.com:8080"]), options).await;
    sandbox.world.resolves("example.com.", PUBLIC);
    let address = sandbox.ask("resolve example.com").unwrap();
    sandbox.ask("resolve evil.example").unwrap_err();
    sandbox.ask("tcp 8.8.8.8:53000 x").unwrap_err();
    sandbox.ask("tcp [fd00:ec2::254]:80 x").unwrap_err();
    sandbox.ask(&format!("tcp {address}:22 x")).unwrap_err();
    sandbox.proxy.set_policy(NetworkPolicy::None);
    sandbox.ask(&format!("tcp {address}:8080 x")).unwrap_err();
    sandbox.ask("resolve example.com").unwrap_err();
    sandbox.end().await;
    let mut told = Vec::new();
    while let Some(denial) = denials.recv().await {
        assert_eq!((denial.reason, denial.suppressed), (Refusal::NotAllowed, 0));
        told.push(denial.target().unwrap());
    }
    assert_eq!(
        told,
        [
            "evil.example",
            "8.8.8.8:53000",
            "[fd00:ec2::254]:80",
            "example.com:22",
            "example.com:8080",
            "example.com"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ending_the_proxy_ends_every_connection() {
    let rules = policy(&[&format!("ip:{PUBLIC}:80")]);
    let mut sandbox = Sandbox::start(Who::Ordinary, rules.clone(), Options::default()).await;
    sandbox.ask(&format!("hold {PUBLIC}:80 5")).unwrap();
    sandbox.world.until(|world| world.alive() == 5).await;
    sandbox.proxy.set_policy(NetworkPolicy::None);
    sandbox.world.until(|world| world.alive() == 0).await;

    sandbox.proxy.set_policy(rules);
    sandbox.ask(&format!("hold {PUBLIC}:80 5")).unwrap();
    sandbox.world.until(|world| world.alive() == 5).await;
    sandbox.end().await;
}
