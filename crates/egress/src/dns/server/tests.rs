use std::net::SocketAddr;

use sandstorm_types::NetworkPolicy;

use super::super::message::tests::query;
use super::*;
use crate::limits::{Limits, Options};
use crate::names::Names;
use crate::testing::{World, allow};

const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

fn world(policy: NetworkPolicy) -> World {
    World::new(policy, Options::default(), NOWHERE)
}

fn ask(world: &World, name: &str, kind: u16) -> Vec<u8> {
    let labels: Vec<&[u8]> = name.split('.').map(str::as_bytes).collect();
    answer(&world.shared, &query(&labels, kind)).unwrap()
}

fn code_and_answers(reply: &[u8]) -> (u8, u8) {
    (reply[3] & 0x0f, reply[7])
}

#[tokio::test]
async fn allowed_names_get_a_synthetic_address_and_nobody_is_asked() {
    let world = world(allow(&["example.com:443", "*.example.net"]));
    for name in ["example.com", "EXAMPLE.com", "a.b.example.net"] {
        let reply = ask(&world, name, 1);
        assert_eq!(code_and_answers(&reply), (0, 1), "{name}");
        let address: [u8; 4] = *reply.last_chunk().unwrap();
        assert!(Names::is_synthetic(address.into()));
    }
    assert_eq!(ask(&world, "example.com", 1), ask(&world, "example.com", 1));
    assert_eq!(world.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn denied_names_are_refused_and_nobody_is_asked() {
    let world = world(allow(&["example.com", "ip:93.184.216.34"]));
    for name in [
        "evil.example",
        "secret-data.example.com",
        "example.com.evil.example",
        "evilexample.com",
        "com",
        "localhost",
        "metadata.internal",
        "34.216.184.93.in-addr.arpa",
        "dns.google",
    ] {
        for kind in [1, 28, 16, 255] {
            assert_eq!(code_and_answers(&ask(&world, name, kind)), (5, 0), "{name} {kind}");
        }
    }
    assert_eq!(world.asked(), Vec::<String>::new());
    assert_eq!(world.shared.counters().queries_refused, 36);
}

#[tokio::test]
async fn other_types_carry_nothing() {
    let world = world(allow(&["example.com"]));
    for kind in [28, 65] {
        assert_eq!(code_and_answers(&ask(&world, "example.com", kind)), (0, 0), "{kind}");
    }
    for kind in [2, 5, 6, 10, 12, 15, 16, 33, 35, 64, 251, 252, 255, 257] {
        assert_eq!(code_and_answers(&ask(&world, "example.com", kind)), (5, 0), "{kind}");
    }
}

#[tokio::test]
async fn a_policy_of_none_answers_nothing() {
    let world = world(NetworkPolicy::None);
    assert_eq!(code_and_answers(&ask(&world, "example.com", 1)), (5, 0));
}

#[tokio::test]
async fn answers_follow_the_policy() {
    let world = world(allow(&["a.test"]));
    assert_eq!(code_and_answers(&ask(&world, "a.test", 1)), (0, 1));
    world.shared.set_policy(allow(&["b.test"]));
    assert_eq!(code_and_answers(&ask(&world, "a.test", 1)), (5, 0));
    assert_eq!(code_and_answers(&ask(&world, "b.test", 1)), (0, 1));
    world.shared.set_policy(NetworkPolicy::None);
    assert_eq!(code_and_answers(&ask(&world, "b.test", 1)), (5, 0));
}

#[tokio::test(start_paused = true)]
async fn denied_lookups_are_told_with_their_name_alone() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(10);
    let options = Options { denials: Some(sender), ..Options::default() };
    let world = World::new(allow(&["a.test"]), options, NOWHERE);
    ask(&world, "evil.example", 1);
    ask(&world, "evil.example", 28);
    ask(&world, "a.test", 16);
    answer(&world.shared, &query(&[b"\x1b[31mred"], 1)).unwrap();
    let told: Vec<_> = std::iter::from_fn(|| receiver.try_recv().ok())
        .map(|denial| (denial.target(), denial.port, denial.reason, denial.suppressed))
        .collect();
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(
        told,
        [
            (name("evil.example"), None, Refusal::NotAllowed, 0),
            (name("a.test"), None, Refusal::RecordType, 1),
            (None, None, Refusal::MalformedQuery, 0),
        ]
    );
    assert_eq!(world.shared.counters().denials_suppressed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_queries_is_dropped() {
    let limits = Limits { queries_per_second: 1, query_burst: 10, ..Limits::default() };
    let world = World::new(allow(&["*.example.com"]), Options { limits, ..Options::default() }, NOWHERE);
    let answered = (0..1000)
        .filter(|index| {
            answer(&world.shared, &query(&[format!("x{index}").as_bytes(), b"example", b"com"], 1)).is_some()
        })
        .count();
    assert!((10..13).contains(&answered), "{answered}");
    assert!(world.shared.counters().queries_dropped > 900);
}

#[tokio::test]
async fn the_table_of_names_stays_small() {
    let limits = Limits { names: 16, query_burst: 10_000, name_burst: 10_000, ..Limits::default() };
    let world = World::new(allow(&["*.example.com"]), Options { limits, ..Options::default() }, NOWHERE);
    let mut seen = std::collections::HashSet::new();
    for index in 0..1000 {
        seen.insert(ask(&world, &format!("x{index}.example.com"), 1));
    }
    assert_eq!(seen.len(), 1000);
    assert_eq!(world.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn lookups_carry_little() {
    let label = "x".repeat(60);
    let long = format!("{label}.{label}.{label}.example.com");
    let world = world(allow(&["*.example.com"]));
    assert_eq!(code_and_answers(&ask(&world, &long, 1)), (5, 0));
    assert_eq!(world.shared.refused()[0].reason, Refusal::LongName);
    assert_eq!(code_and_answers(&ask(&world, &format!("{label}.{label}.example.com"), 1)), (0, 1));
    world.shared.set_policy(NetworkPolicy::Open);
    assert_eq!(code_and_answers(&ask(&world, &long, 1)), (5, 0));
    world.shared.set_policy(allow(&[&long]));
    assert_eq!(code_and_answers(&ask(&world, &long, 1)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn new_names_come_slowly_and_known_ones_at_once() {
    let limits = Limits { names_per_second: 10, name_burst: 20, query_burst: 10_000, ..Limits::default() };
    let world = World::new(allow(&["*.example.com"]), Options { limits, ..Options::default() }, NOWHERE);
    let answered = |index: usize| {
        answer(&world.shared, &query(&[format!("x{index}").as_bytes(), b"example", b"com"], 1)).is_some()
    };
    assert_eq!((0..1000).filter(|&index| answered(index)).count(), 20);
    assert_eq!((0..1000).filter(|_| answered(7)).count(), 1000);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((1000..2000).filter(|&index| answered(index)).count(), 10);
}

#[tokio::test]
async fn udp_survives_nonsense() {
    let world = world(allow(&["example.com"]));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = socket.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_udp(Arc::clone(&world.shared), socket));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for nonsense in [&[][..], &[0; 3], &[0xff; 600], &[0; 5000]] {
        client.send_to(nonsense, server).await.unwrap();
    }
    client.send_to(&query(&[b"example", b"com"], 1), server).await.unwrap();
    let mut buffer = [0; 2048];
    loop {
        let length = timeout(Duration::from_secs(60), client.recv(&mut buffer)).await.unwrap().unwrap();
        if code_and_answers(&buffer[..length]) == (0, 1) {
            break;
        }
    }
}

#[tokio::test]
async fn tcp_answers_several_queries_and_closes_on_nonsense() {
    let world = world(allow(&["example.com"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve_tcp(Arc::clone(&world.shared), listener));
    let mut client = TcpStream::connect(server).await.unwrap();
    for (name, expected) in [("example", (0, 1)), ("evil", (5, 0))] {
        let query = query(&[name.as_bytes(), b"com"], 1);
        client.write_u16(u16::try_from(query.len()).unwrap()).await.unwrap();
        client.write_all(&query).await.unwrap();
        let mut reply = vec![0; client.read_u16().await.unwrap().into()];
        client.read_exact(&mut reply).await.unwrap();
        assert_eq!(code_and_answers(&reply), expected);
    }
    client.write_u16(u16::MAX).await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
}
