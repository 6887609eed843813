use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_types::NetworkPolicy;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::boundary::Boundary;
use crate::hello::tests::{encrypted_hello_for, hello_for};
use crate::limits::{Limits, Options};
use crate::testing::{World, allow, list};

mod answers;
mod changes;
mod filters;
mod names;
mod requests;

const PUBLIC: &str = "93.184.216.34";

/// A world whose server greets, reads to the end and sends everything back.
async fn world_with(policy: NetworkPolicy, options: Options) -> (World, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::new(policy, options, listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut read = Vec::new();
                let _ = stream.write_all(b"hi:").await;
                let _ = stream.read_to_end(&mut read).await;
                let _ = stream.write_all(&read).await;
            });
        }
    });
    (world, server)
}

async fn world(policy: NetworkPolicy) -> (World, JoinSet<()>) {
    world_with(policy, Options::default()).await
}

/// A pair of connected streams: the sandbox's end and the proxy's end.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Connects as the sandbox would to `original`, sends the pieces, closes its side and returns what came back.
async fn attempt(world: &World, original: SocketAddr, pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
    let (mut client, accepted) = pair().await;
    client.set_nodelay(true).unwrap();
    let talk = async {
        for piece in pieces {
            client.write_all(piece).await?;
            tokio::task::yield_now().await;
        }
        client.shutdown().await?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await?;
        Ok(answer)
    };
    let serve = serve_to(&world.shared, accepted, original);
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(talk, serve).0 }).await.unwrap()
}

/// The address that the sandbox was told for a name, with a port.
fn synthetic(world: &World, name: &str, port: u16) -> SocketAddr {
    (world.shared.address_for(&name.parse().unwrap()).unwrap(), port).into()
}

fn last_reason(world: &World) -> Refusal {
    world.shared.refused().last().unwrap().reason
}

/// A client is reset, or told why if it speaks plain HTTP; no byte of a server comes back.
async fn refused(world: &World, original: SocketAddr, pieces: &[&[u8]], reason: Refusal) {
    let outcome = attempt(world, original, pieces).await;
    let told = outcome.as_ref().is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 403 Forbidden\r\n"));
    assert!(outcome.is_err() || told, "{original}: {outcome:?}");
    assert_eq!(last_reason(world), reason, "{original}");
}

fn assert_silent(world: &World) {
    assert_eq!(world.asked(), Vec::<String>::new(), "names were looked up");
    assert_eq!(world.dialled(), Vec::new(), "addresses were dialled");
}

#[tokio::test]
async fn an_allowed_name_is_resolved_here_and_dialled_unchanged() {
    let (world, _server) = world(allow(&["example.com"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let hello = hello_for(&["example.com"]);
    let rest = b"\x17\x03\x03\0\x04rest";
    let answer = attempt(&world, synthetic(&world, "example.com", 443), &[&hello, rest]).await.unwrap();
    assert_eq!(answer, [b"hi:", &hello[..], rest].concat());
    assert_eq!(world.asked(), ["example.com."]);
    assert_eq!(world.dialled(), [format!("{PUBLIC}:443").parse().unwrap()]);
    let counters = world.shared.counters();
    assert_eq!((counters.connected, counters.refused), (1, 0));
    assert_eq!(
        (counters.bytes_up, counters.bytes_down),
        ((hello.len() + rest.len()) as u64, answer.len() as u64)
    );
}

#[tokio::test]
async fn special_addresses_are_out_of_reach_under_every_policy() {
    let addresses = [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "127.0.0.1",
        "127.1.2.3",
        "0.0.0.0",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::7f00:1",
    ];
    for text in addresses {
        let address: IpAddr = text.parse().unwrap();
        for port in [80, 443, 22] {
            let original = SocketAddr::new(address, port);
            let (open, _server) = world(NetworkPolicy::Open).await;
            refused(&open, original, &[b"x"], Refusal::ForbiddenAddress).await;
            assert_silent(&open);
            let (listed, _server) = world(allow(&["example.com"])).await;
            refused(&listed, original, &[b"x"], Refusal::NotAllowed).await;
            assert_silent(&listed);
        }
    }
    // Even a rule for the very address lifts nothing, unless the operator made it.
    let (own_rule, _server) = world(allow(&["ip:169.254.169.254", "ip:127.0.0.1", "ip:[::1]"])).await;
    for original in ["169.254.169.254:80", "127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
        refused(&own_rule, original.parse().unwrap(), &[b"x"], Refusal::ForbiddenAddress).await;
    }
    assert_silent(&own_rule);
}

#[tokio::test]
async fn a_name_that_turns_inwards_is_dropped() {
    for answer in [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "192.168.0.1",
        "198.18.1.0",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:93.184.216.34",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ] {
        let (world, _server) = world(allow(&["example.com"])).await;
        world.resolves("example.com.", &[answer]);
        let original = synthetic(&world, "example.com", 443);
        refused(&world, original, &[&hello_for(&["example.com"])], Refusal::ForbiddenAddress).await;
        assert_eq!(world.dialled(), Vec::new(), "{answer}");
    }
}

#[tokio::test]
async fn every_connection_is_checked_anew() {
    let (world, _server) = world(allow(&["example.com"])).await;
    let original = synthetic(&world, "example.com", 443);
    let hello = hello_for(&["example.com"]);
    world.resolves("example.com.", &[PUBLIC]);
    attempt(&world, original, &[&hello]).await.unwrap();
    world.resolves("example.com.", &["127.0.0.1"]);
    refused(&world, original, &[&hello], Refusal::ForbiddenAddress).await;
    world.resolves("example.com.", &["127.0.0.1", "8.8.8.8", "::1"]);
    attempt(&world, original, &[&hello]).await.unwrap();
    assert_eq!(world.dialled(), [format!("{PUBLIC}:443").parse().unwrap(), "8.8.8.8:443".parse().unwrap()]);
}

/// The wall itself is in the boundary; here, that every connection meets it, whether by address or by name.
#[tokio::test]
async fn nothing_beyond_the_boundary_is_dialled() {
    let resolver = Arc::new(crate::testing::FakeResolver::default());
    let said = ["2a00:64::c000:aa".parse().unwrap()].to_vec();
    resolver.answers.lock().unwrap().insert("ipv4only.arpa.".to_owned(), said);
    let boundary = Arc::new(Boundary::new(vec!["93.184.217.0/24".parse().unwrap()], Vec::new(), resolver));
    let (world, _server) = world_with(NetworkPolicy::Open, Options { boundary, ..Options::default() }).await;
    for (address, reason) in [
        ("168.63.129.16", Refusal::ForbiddenAddress),
        ("192.80.8.124", Refusal::ForbiddenAddress),
        ("93.184.217.7", Refusal::DeniedAddress),
        ("2a00:64::a83f:8110", Refusal::ForbiddenAddress),
        ("2a00:64::5db8:d907", Refusal::DeniedAddress),
        ("2a00:1::5efe:a00:1", Refusal::ForbiddenAddress),
    ] {
        world.resolves("inside.example.", &[address]);
        refused(&world, (address.parse::<IpAddr>().unwrap(), 80).into(), &[b"x"], reason).await;
        refused(&world, synthetic(&world, "inside.example", 80), &[b"x"], reason).await;
    }
    assert_eq!(world.dialled(), Vec::new(), "addresses were dialled");
    attempt(&world, "[2a00:64::5db8:d822]:80".parse().unwrap(), &[b"x"]).await.unwrap();
    assert_eq!(world.dialled().len(), 1);
}

#[tokio::test]
async fn only_the_operators_rule_reaches_inside() {
    let rule = "index.example:3141".parse::<sandstorm_types::Rule>().unwrap().internal();
    let (world, _server) = world(list(vec![rule])).await;
    world.resolves("index.example", &["127.0.0.1"]);
    attempt(&world, synthetic(&world, "index.example", 3141), &[b"GET"]).await.unwrap();
    assert_eq!(world.dialled(), ["127.0.0.1:3141".parse().unwrap()]);
    refused(&world, synthetic(&world, "index.example", 22), &[b"x"], Refusal::NotAllowed).await;
    refused(&world, "127.0.0.1:3141".parse().unwrap(), &[b"x"], Refusal::NotAllowed).await;
    assert_eq!(world.dialled().len(), 1);
}

#[tokio::test]
async fn a_synthetic_address_without_a_name_is_refused() {
    for policy in [NetworkPolicy::Open, allow(&["example.com"])] {
        let (world, _server) = world(policy).await;
        for original in ["198.18.0.1:443", "198.18.1.0:443", "198.19.255.255:80"] {
            refused(&world, original.parse().unwrap(), &[b"x"], Refusal::UnknownAddress).await;
        }
        assert_silent(&world);
    }
}

#[tokio::test]
async fn other_ports_are_refused_before_anyone_is_asked() {
    let (world, _server) = world(allow(&["example.com"])).await;
    for port in [1, 22, 25, 53, 8080, 8443, 65535] {
        refused(&world, synthetic(&world, "example.com", port), &[b"x"], Refusal::NotAllowed).await;
    }
    assert_silent(&world);
}

#[tokio::test]
async fn the_server_name_must_be_the_matched_name() {
    let (world, _server) = world(allow(&["example.com", "*.example.net"])).await;
    let original = synthetic(&world, "example.com", 443);
    for (hello, reason) in [
        (hello_for(&["evil.example"]), Refusal::OtherServerName),
        (hello_for(&["a.example.net"]), Refusal::OtherServerName),
        (hello_for(&["example.com."]), Refusal::OtherServerName),
        (hello_for(&["evil.example\0.example.com"]), Refusal::OtherServerName),
        (hello_for(&["example.com\0"]), Refusal::OtherServerName),
        (hello_for(&["xexample.com"]), Refusal::OtherServerName),
        (hello_for(&[]), Refusal::NoServerName),
        (hello_for(&["example.com", "evil.example"]), Refusal::MalformedHello),
        (encrypted_hello_for("example.com"), Refusal::EncryptedHello),
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec(), Refusal::NotTls),
        (b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n".to_vec(), Refusal::NotTls),
        (hello_for(&["example.com"])[..30].to_vec(), Refusal::MalformedHello),
        (Vec::new(), Refusal::MalformedHello),
    ] {
        refused(&world, original, &[&hello], reason).await;
    }
    assert_silent(&world);
}

#[tokio::test]
async fn a_hello_in_many_segments_is_read_whole() {
    let (world, _server) = world(allow(&["example.com"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let original = synthetic(&world, "example.com", 443);
    let good = hello_for(&["Example.COM"]);
    let pieces: Vec<&[u8]> = good.chunks(1).collect();
    assert_eq!(attempt(&world, original, &pieces).await.unwrap()[3..], good);
    let bad = hello_for(&["evil.example"]);
    let pieces: Vec<&[u8]> = bad.chunks(1).collect();
    refused(&world, original, &pieces, Refusal::OtherServerName).await;
    assert_eq!(world.dialled().len(), 1);
}

#[tokio::test]
async fn tls_on_another_port_is_checked_as_well() {
    let (world, _server) = world(allow(&["example.com:8443"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let original = synthetic(&world, "example.com", 8443);
    attempt(&world, original, &[&hello_for(&["example.com"])]).await.unwrap();
    attempt(&world, original, &[b"plain"]).await.unwrap();
    attempt(&world, original, &[&[22], b"x"]).await.unwrap();
    let sent = world.shared.counters().bytes_up;
    refused(&world, original, &[&hello_for(&["evil.example"])], Refusal::OtherServerName).await;
    let bad = hello_for(&["evil.example"]);
    let pieces: Vec<&[u8]> = bad.chunks(1).collect();
    refused(&world, original, &pieces, Refusal::OtherServerName).await;
    assert_eq!(world.shared.counters().bytes_up, sent, "the server heard of the other name");
}

#[tokio::test]
async fn the_lenient_mode_still_refuses_another_name() {
    let options = Options { server_name: ServerName::WhenPresent, ..Options::default() };
    let (world, _server) = world_with(allow(&["example.com"]), options).await;
    world.resolves("example.com.", &[PUBLIC]);
    let original = synthetic(&world, "example.com", 443);
    for passes in [hello_for(&[]), encrypted_hello_for("example.com"), b"not TLS".to_vec()] {
        attempt(&world, original, &[&passes]).await.unwrap();
    }
    refused(&world, original, &[&hello_for(&["evil.example"])], Refusal::OtherServerName).await;
}

#[tokio::test]
async fn a_bare_address_with_a_rule_passes() {
    let (world, _server) = world(allow(&[&format!("ip:{PUBLIC}:22")])).await;
    let original = SocketAddr::new(PUBLIC.parse().unwrap(), 22);
    assert_eq!(attempt(&world, original, &[b"SSH-2.0"]).await.unwrap(), b"hi:SSH-2.0");
    assert_eq!(world.dialled(), [original]);
    assert_eq!(world.asked(), Vec::<String>::new());
    refused(&world, SocketAddr::new("93.184.216.35".parse().unwrap(), 22), &[b"x"], Refusal::NotAllowed)
        .await;
}

#[tokio::test]
async fn an_open_policy_does_not_ask_for_tls() {
    let (world, _server) = world(NetworkPolicy::Open).await;
    world.resolves("ssh.example.com.", &[PUBLIC]);
    world.resolves("inside.example.com.", &["10.0.0.1"]);
    attempt(&world, synthetic(&world, "ssh.example.com", 443), &[b"SSH-2.0"]).await.unwrap();
    refused(&world, synthetic(&world, "inside.example.com", 443), &[b"x"], Refusal::ForbiddenAddress).await;
    assert_eq!(world.dialled(), [format!("{PUBLIC}:443").parse().unwrap()]);
}

#[tokio::test]
async fn a_name_gets_few_tries() {
    let (world, mut server) = world(allow(&["example.com:80"])).await;
    server.shutdown().await;
    world.resolves("example.com.", &[PUBLIC; 100]);
    refused(&world, synthetic(&world, "example.com", 80), &[b"x"], Refusal::Unreachable).await;
    assert_eq!(world.dialled().len(), MAX_ADDRESSES);
}

#[tokio::test]
async fn a_server_may_speak_first() {
    let (world, _server) = world(allow(&["example.com:22"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let (mut client, accepted) = pair().await;
    let serve = serve_to(&world.shared, accepted, synthetic(&world, "example.com", 22));
    let talk = async {
        let mut greeting = [0; 3];
        client.read_exact(&mut greeting).await.unwrap();
        client.write_all(b"SSH").await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!((&greeting, &answer[..]), (b"hi:", &b"SSH"[..]));
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(serve, talk) }).await.unwrap();
}

#[tokio::test]
async fn names_that_lead_nowhere_are_reset() {
    let (world, mut server) = world(allow(&["example.com:80", "gone.example:80"])).await;
    refused(&world, synthetic(&world, "example.com", 80), &[b"x"], Refusal::Unresolved).await;
    world.resolves("example.com.", &[]);
    refused(&world, synthetic(&world, "example.com", 80), &[b"x"], Refusal::Unresolved).await;
    server.shutdown().await;
    world.resolves("gone.example.", &[PUBLIC, "8.8.8.8"]);
    refused(&world, synthetic(&world, "gone.example", 80), &[b"x"], Refusal::Unreachable).await;
    assert_eq!(world.dialled().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_not_waited_for() {
    let (world, _server) = world(allow(&["example.com"])).await;
    let (client, accepted) = pair().await;
    serve_to(&world.shared, accepted, synthetic(&world, "example.com", 443)).await;
    assert_eq!(last_reason(&world), Refusal::MalformedHello);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let (world, _server) = world(allow(&["example.com:80"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let (client, accepted) = pair().await;
    serve_to(&world.shared, accepted, synthetic(&world, "example.com", 80)).await;
    assert_eq!(last_reason(&world), Refusal::Idle);
    drop(client);
}

#[tokio::test]
async fn bytes_are_bounded_over_all_connections() {
    let limits = Limits { bytes_up: 1000, ..Limits::default() };
    let (world, _server) =
        world_with(allow(&["example.com:8080"]), Options { limits, ..Options::default() }).await;
    world.resolves("example.com.", &[PUBLIC]);
    let original = synthetic(&world, "example.com", 8080);
    attempt(&world, original, &[&[7; 600]]).await.unwrap();
    refused(&world, original, &[&[7; 600]], Refusal::BytesUsedUp).await;
    assert!(world.shared.counters().bytes_up <= 1000);

    let limits = Limits { bytes_down: 100, ..Limits::default() };
    let (world, _server) =
        world_with(allow(&["example.com:8080"]), Options { limits, ..Options::default() }).await;
    world.resolves("example.com.", &[PUBLIC]);
    refused(&world, synthetic(&world, "example.com", 8080), &[&[7; 600]], Refusal::BytesUsedUp).await;
    assert!(world.shared.counters().bytes_down <= 100);
}

#[tokio::test]
async fn large_streams_pass_whole() {
    let (world, _server) = world(allow(&["example.com:8080"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    let answer = attempt(&world, synthetic(&world, "example.com", 8080), &[&sent]).await.unwrap();
    assert!(answer[3..] == sent);
}

#[tokio::test]
async fn a_server_that_answers_early_is_heard() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let world = World::new(allow(&["example.com:8080"]), Options::default(), listener.local_addr().unwrap());
    world.resolves("example.com.", &[PUBLIC]);
    let (client, accepted) = pair().await;
    let (mut from_proxy, mut to_proxy) = client.into_split();
    let upload = async move { while to_proxy.write_all(&[0; 4096]).await.is_ok() {} };
    let serve = serve_to(&world.shared, accepted, synthetic(&world, "example.com", 8080));
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 4096]).await.unwrap();
        stream.write_all(b"413").await.unwrap();
    };
    let listen = async {
        let mut answer = [0; 3];
        from_proxy.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"413");
    };
    let all = async { tokio::join!(upload, serve, server, listen) };
    tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
}

#[tokio::test]
async fn a_broken_answer_does_not_look_finished() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let world = World::new(allow(&["example.com:80"]), Options::default(), listener.local_addr().unwrap());
    world.resolves("example.com.", &[PUBLIC]);
    let (mut client, accepted) = pair().await;
    let serve = serve_to(&world.shared, accepted, synthetic(&world, "example.com", 80));
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"half").await.unwrap();
        while world.shared.counters().bytes_down < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stream.set_zero_linger().unwrap();
    };
    let listen = async {
        let mut answer = Vec::new();
        assert!(client.read_to_end(&mut answer).await.is_err(), "{answer:?} looks whole");
    };
    let all = async { tokio::join!(serve, server, listen) };
    tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
}
