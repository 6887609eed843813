//! What a client sees of a refusal, and what a watch has of it.

use sandstorm_types::Denied;

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n";

fn said(denied: &[Denied]) -> Vec<(String, &str, u64)> {
    denied.iter().map(|one| (one.target().unwrap(), one.reason.as_str(), one.count)).collect()
}

async fn is_reset(world: &World, original: SocketAddr, pieces: &[&[u8]]) {
    let outcome = attempt(world, original, pieces).await;
    assert!(outcome.is_err(), "{original}: {outcome:?}");
}

#[tokio::test]
async fn a_client_of_plain_http_is_told_why() {
    let (world, _server) = world(allow(&["example.com:443"])).await;
    let name = synthetic(&world, "example.com", 80);
    let odd = synthetic(&world, "example.com", 8081);
    let bare = "10.0.0.1:80".parse().unwrap();
    let long = [&b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"[..], &[b'x'; 100_000]].concat();
    let slow: Vec<&[u8]> = GET.chunks(1).collect();
    for (original, pieces, target) in [
        (name, &[GET][..], "example.com:80"),
        (name, &[&long], "example.com:80"),
        (odd, &[b"CONNECT a:1 HTTP/1.1\r\n"], "example.com:8081"),
        (bare, &slow, "10.0.0.1:80"),
    ] {
        let answer = String::from_utf8(attempt(&world, original, pieces).await.unwrap()).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain"), "{head}");
        assert!(head.contains("\r\nConnection: close"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", text.len())), "{head}: {text}");
        let wanted = format!("the connection to {target} was refused: the network policy does not allow");
        assert!(text.contains(&wanted), "{text}");
        assert_eq!(last_reason(&world), Refusal::NotAllowed);
    }
    assert_silent(&world);
}

#[tokio::test]
async fn an_address_out_of_reach_and_another_host_are_told_too() {
    let (open, _server) = world(NetworkPolicy::Open).await;
    let answer = attempt(&open, "169.254.169.254:80".parse().unwrap(), &[GET]).await.unwrap();
    assert!(String::from_utf8(answer).unwrap().contains("is not a public address"));
    // A server that waits for the request, so that nothing was answered when it is refused.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::new(allow(&["a.test:80"]), Options::default(), listener.local_addr().unwrap());
    world.resolves("a.test.", &[PUBLIC]);
    let answer = attempt(&world, synthetic(&world, "a.test", 80), &[GET]).await.unwrap();
    assert!(String::from_utf8(answer).unwrap().contains("names another host"));
    assert_eq!(world.shared.counters().bytes_up, 0);
}

#[tokio::test]
async fn other_clients_are_reset_as_ever() {
    let (world, _server) = world(allow(&["other.test", "example.com:443"])).await;
    let original = synthetic(&world, "example.com", 80);
    for speech in [&b""[..], b"GET / HT", b"SSH-2.0-x\r\n", b"\0\0\0\x08", &hello_for(&["example.com"])] {
        is_reset(&world, original, &[speech]).await;
        assert_eq!(last_reason(&world), Refusal::NotAllowed);
    }
    // A server that is not there is no decision of a policy.
    is_reset(&world, synthetic(&world, "other.test", 80), &[GET]).await;
    assert_eq!(last_reason(&world), Refusal::Unresolved);
}

/// A client that says nothing is refused soon, although another one could have said something.
#[tokio::test(start_paused = true)]
async fn a_silent_client_waits_for_a_moment_only() {
    let (world, _server) = world(allow(&["example.com:443"])).await;
    for (port, longest) in [(22, 1), (80, 3)] {
        let (mut client, accepted) = pair().await;
        let began = tokio::time::Instant::now();
        serve_to(&world.shared, accepted, synthetic(&world, "example.com", port)).await;
        assert!(began.elapsed() < Duration::from_secs(longest), "{port}: {:?}", began.elapsed());
        assert!(client.read_to_end(&mut Vec::new()).await.is_err());
    }
}

#[tokio::test]
async fn a_flood_takes_no_more_seats_than_there_are() {
    let (world, _server) = world(allow(&["example.com:443"])).await;
    let original = synthetic(&world, "example.com", 80);
    let taken: Vec<_> = std::iter::from_fn(|| world.shared.seat()).collect();
    assert_eq!(taken.len(), 16);
    is_reset(&world, original, &[GET]).await;
    drop(taken);
    assert!(attempt(&world, original, &[GET]).await.is_ok());
}

#[tokio::test]
async fn a_watch_has_what_does_not_get_through() {
    let watchers = Arc::<crate::Watchers>::default();
    let options = Options { watchers: Arc::clone(&watchers), ..Options::default() };
    let (world, _server) = world_with(allow(&["example.com", "gone.test:80"]), options).await;
    world.resolves("example.com.", &["10.1.2.3"]);
    attempt(&world, "8.8.8.8:53".parse().unwrap(), &[b"x"]).await.unwrap_err();
    let watch = watchers.watch();
    let hello = hello_for(&["example.com"]);
    let evil = hello_for(&["evil.test"]);
    for (original, speech) in [
        ("8.8.8.8:22".parse().unwrap(), &b"x"[..]),
        ("8.8.8.8:22".parse().unwrap(), b"x"),
        (synthetic(&world, "example.com", 443), &hello),
        (synthetic(&world, "example.com", 443), &evil),
        (synthetic(&world, "gone.test", 80), b"x"),
    ] {
        attempt(&world, original, &[speech]).await.unwrap_err();
    }
    let seen = watch.seen();
    assert_eq!(
        said(&seen),
        [
            ("8.8.8.8:22".to_owned(), "not_allowed", 2),
            ("example.com:443".to_owned(), "forbidden_address", 1),
            ("example.com:443".to_owned(), "other_server_name", 1),
            ("gone.test:80".to_owned(), "unresolved", 1),
        ]
    );
    assert!(seen.iter().all(|one| one.protocol == sandstorm_types::DeniedProtocol::Tcp));
}
