//! Plain HTTP through the proxy: every request must be for the name that was matched.

use super::*;

const GOOD: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
const EVIL: &[u8] = b"GET /stolen HTTP/1.1\r\nHost: evil.test\r\n\r\n";

async fn a_test(options: Options) -> (World, JoinSet<()>) {
    let (world, server) = world_with(allow(&["a.test:80,8080"]), options).await;
    world.resolves("a.test.", &[PUBLIC]);
    (world, server)
}

#[tokio::test]
async fn requests_for_the_name_pass_unchanged() {
    let (world, _server) = a_test(Options::default()).await;
    let post =
        b"POST / HTTP/1.1\r\nHost: A.test:80\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let stream = [GOOD, post, GOOD].concat();
    for size in [1, 1000] {
        let pieces: Vec<&[u8]> = stream.chunks(size).collect();
        let answer = attempt(&world, synthetic(&world, "a.test", 80), &pieces).await.unwrap();
        assert_eq!(answer[3..], stream);
    }
}

#[tokio::test]
async fn another_host_is_refused_on_every_port_and_in_every_request() {
    let (world, _server) = a_test(Options::default()).await;
    for port in [80, 8080] {
        let original = synthetic(&world, "a.test", port);
        refused(&world, original, &[EVIL], Refusal::OtherHost).await;
        let pieces: Vec<&[u8]> = EVIL.chunks(1).collect();
        refused(&world, original, &pieces, Refusal::OtherHost).await;
        assert_eq!(world.shared.counters().bytes_up, 0, "the server heard of the other host");
        for reason in [
            (&b"CONNECT evil.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n"[..], Refusal::ProxyRequest),
            (b"GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", Refusal::OtherHost),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Refusal::PlainHttp2),
            (b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n", Refusal::MalformedRequest),
            (b"\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", Refusal::MalformedRequest),
            (b"GET / HTTP/1.1\nHost: evil.test\n\n", Refusal::MalformedRequest),
            (b"GET / HTTP/1.1\r\nHost: a.test\r\n", Refusal::MalformedRequest),
        ] {
            refused(&world, original, &[reason.0], reason.1).await;
        }
        assert_eq!(world.shared.counters().bytes_up, 0);
    }
    let original = synthetic(&world, "a.test", 80);
    refused(&world, original, &[GOOD, EVIL], Refusal::OtherHost).await;
    refused(&world, original, &[GOOD, GOOD, EVIL], Refusal::OtherHost).await;
    assert!(world.shared.counters().bytes_up <= 3 * GOOD.len() as u64, "the later request passed");
}

#[tokio::test]
async fn port_80_is_for_http() {
    let (world, _server) = a_test(Options::default()).await;
    let original = synthetic(&world, "a.test", 80);
    for speech in [&b"SSH-2.0-x\r\n"[..], b"\0\0\0\0", b"GET /\r\n", b"half a line"] {
        refused(&world, original, &[speech], Refusal::NotHttp).await;
    }
    refused(&world, original, &[&hello_for(&["evil.test"])], Refusal::OtherServerName).await;
    assert_eq!(world.shared.counters().bytes_up, 0);
    attempt(&world, original, &[&hello_for(&["a.test"])]).await.unwrap();
    attempt(&world, synthetic(&world, "a.test", 8080), &[b"SSH-2.0-x\r\n"]).await.unwrap();

    let lenient = Options { server_name: ServerName::WhenPresent, ..Options::default() };
    let (world, _server) = a_test(lenient).await;
    let original = synthetic(&world, "a.test", 80);
    attempt(&world, original, &[b"SSH-2.0-x\r\n"]).await.unwrap();
    refused(&world, original, &[EVIL], Refusal::OtherHost).await;
}

#[tokio::test]
async fn an_open_policy_reads_no_requests() {
    let (world, _server) = world(NetworkPolicy::Open).await;
    world.resolves("a.test.", &[PUBLIC]);
    attempt(&world, synthetic(&world, "a.test", 80), &[EVIL]).await.unwrap();
}

/// A server that answers the first request with `answer` and then says what else it heard.
async fn upgrade(answer: &'static [u8], then: &[u8]) -> (World, io::Result<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let world = World::new(allow(&["a.test:80"]), Options::default(), listener.local_addr().unwrap());
    world.resolves("a.test.", &[PUBLIC]);
    let (mut client, accepted) = pair().await;
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = vec![0; 1024];
        let length = stream.read(&mut heard).await.unwrap();
        assert!(heard[..length].ends_with(b"\r\n\r\n"));
        stream.write_all(answer).await.unwrap();
        let mut later = Vec::new();
        stream.read_to_end(&mut later).await.map(|_| later)
    };
    let talk = async {
        let asked = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        client.write_all(asked).await.unwrap();
        client.read_exact(&mut vec![0; answer.len()]).await.unwrap();
        client.write_all(then).await.unwrap();
        let _ = client.shutdown().await;
    };
    let serve = serve_to(&world.shared, accepted, synthetic(&world, "a.test", 80));
    let all = async { tokio::join!(server, talk, serve).0 };
    let heard = tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
    (world, heard)
}

#[tokio::test]
async fn a_web_socket_opens_only_if_the_server_says_so() {
    let (world, heard) = upgrade(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"\x81\x05frame").await;
    assert_eq!((heard.unwrap(), world.shared.counters().refused), (b"\x81\x05frame".to_vec(), 0));
    let (world, heard) = upgrade(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", EVIL).await;
    assert!(heard.map_or(true, |heard| heard.is_empty()), "the other host's request passed");
    assert_eq!(last_reason(&world), Refusal::OtherHost);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_stalls_is_not_waited_for() {
    let (world, _server) = a_test(Options::default()).await;
    let (mut client, accepted) = pair().await;
    client.write_all(b"GET / HT").await.unwrap();
    serve_to(&world.shared, accepted, synthetic(&world, "a.test", 8080)).await;
    assert_eq!(last_reason(&world), Refusal::MalformedRequest);
    assert_eq!(world.shared.counters().bytes_up, 0);
    drop(client);
}
