//! Filters: what they deny is out of reach by every way, what they allow goes first, and headers reach one host alone.

use super::*;

fn filter(written: &str) -> NetworkPolicy {
    serde_json::from_str(&format!("{{\"filter\": {written}}}")).unwrap()
}

const DENIED: &str = r#"{"deny": ["93.184.216.0/24"], "allow": ["good.test", "ip:93.184.216.7"]}"#;
const WITH_HEADERS: &str =
    r#"{"headers": [{"host": "api.test", "headers": {"X-Token": "secret", "Accept": "a/b"}}]}"#;

#[tokio::test]
async fn what_is_denied_is_out_of_reach_by_address_and_by_name() {
    let (world, _server) = world(filter(DENIED)).await;
    world.resolves("bad.test.", &[PUBLIC]);
    let direct = format!("{PUBLIC}:8080").parse().unwrap();
    refused(&world, direct, &[b"x"], Refusal::NotAllowed).await;
    let mapped = format!("[::ffff:{PUBLIC}]:8080").parse().unwrap();
    refused(&world, mapped, &[b"x"], Refusal::NotAllowed).await;
    refused(&world, synthetic(&world, "bad.test", 8080), &[b"x"], Refusal::NotAllowed).await;
    assert_eq!(world.dialled(), Vec::new(), "addresses were dialled");
    // Of several addresses those that are not denied are tried.
    world.resolves("both.test.", &[PUBLIC, "1.1.1.1"]);
    attempt(&world, synthetic(&world, "both.test", 8080), &[b"x"]).await.unwrap();
    attempt(&world, "1.1.1.1:22".parse().unwrap(), &[b"x"]).await.unwrap();
    let dialled = ["1.1.1.1:8080", "1.1.1.1:22"].map(|address| address.parse().unwrap());
    assert_eq!(world.dialled(), dialled);
}

#[tokio::test]
async fn what_is_allowed_goes_first_and_by_its_own_name() {
    let (world, _server) = world(filter(DENIED)).await;
    world.resolves("good.test.", &[PUBLIC]);
    attempt(&world, "93.184.216.7:22".parse().unwrap(), &[b"x"]).await.unwrap();
    let good = b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n";
    attempt(&world, synthetic(&world, "good.test", 80), &[good]).await.unwrap();
    let dialled = ["93.184.216.7:22", "93.184.216.34:80"].map(|address| address.parse().unwrap());
    assert_eq!(world.dialled(), dialled);
    // Whoever answers there may answer for others, too.
    let other = b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n";
    refused(&world, synthetic(&world, "good.test", 80), &[other], Refusal::OtherHost).await;
    refused(&world, synthetic(&world, "good.test", 8080), &[b"x"], Refusal::NotAllowed).await;
}

#[tokio::test]
async fn where_everything_is_denied_nothing_else_is_looked_up() {
    let (world, _server) = world(filter(r#"{"deny": ["0.0.0.0/0"], "allow": ["good.test"]}"#)).await;
    world.resolves("good.test.", &[PUBLIC]);
    world.resolves("bad.test.", &["1.1.1.1"]);
    refused(&world, synthetic(&world, "bad.test", 443), &[b"x"], Refusal::NotAllowed).await;
    refused(&world, "1.1.1.1:443".parse().unwrap(), &[b"x"], Refusal::NotAllowed).await;
    refused(&world, "[2606:4700::1]:443".parse().unwrap(), &[b"x"], Refusal::NotAllowed).await;
    assert_silent(&world);
    let hello = hello_for(&["good.test"]);
    attempt(&world, synthetic(&world, "good.test", 443), &[&hello]).await.unwrap();
}

/// A translator of this network would make the denied address of another one.
#[tokio::test]
async fn an_address_is_denied_in_its_translation_too() {
    let configured = vec!["2001:db8:64::/96".parse().unwrap()];
    let boundary = Boundary::new(Vec::new(), configured, Arc::new(crate::testing::FakeResolver::default()));
    let options = Options { boundary: Arc::new(boundary), ..Options::default() };
    let (world, _server) = world_with(filter(r#"{"deny": ["8.8.8.8/32"]}"#), options).await;
    refused(&world, "[2001:db8:64::808:808]:443".parse().unwrap(), &[b"x"], Refusal::NotAllowed).await;
    attempt(&world, "[2001:db8:64::101:101]:443".parse().unwrap(), &[b"x"]).await.unwrap();
}

#[tokio::test]
async fn every_request_to_a_host_gets_its_headers() {
    let (world, _server) = world(filter(WITH_HEADERS)).await;
    world.resolves("api.test.", &[PUBLIC]);
    world.resolves("other.test.", &[PUBLIC]);
    let request = "POST /a HTTP/1.1\r\nHost: api.test\r\nx-token: forged\r\nX-TOKEN: twice\r\nContent-Length: 2\r\n\r\nhi";
    let wanted =
        "POST /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\nAccept: a/b\r\nX-Token: secret\r\n\r\nhi";
    for size in [1, 1000] {
        let stream = request.repeat(2);
        let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
        let answer = attempt(&world, synthetic(&world, "api.test", 80), &pieces).await.unwrap();
        assert_eq!(String::from_utf8(answer[3..].to_vec()).unwrap(), wanted.repeat(2));
    }
    let plain = b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n";
    let answer = attempt(&world, synthetic(&world, "other.test", 80), &[plain]).await.unwrap();
    assert_eq!(&answer[3..], plain, "requests to other hosts stay as they are");
    let elsewhere = b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n";
    refused(&world, synthetic(&world, "api.test", 80), &[elsewhere], Refusal::OtherHost).await;
}

#[tokio::test]
async fn tls_to_a_host_with_headers_is_refused_by_name() {
    let (world, _server) = world(filter(WITH_HEADERS)).await;
    world.resolves("api.test.", &[PUBLIC]);
    let hello = hello_for(&["api.test"]);
    for port in [443, 8443] {
        refused(&world, synthetic(&world, "api.test", port), &[&hello], Refusal::HeadersInTls).await;
    }
    let other = hello_for(&["other.test"]);
    world.resolves("other.test.", &[PUBLIC]);
    attempt(&world, synthetic(&world, "other.test", 443), &[&other]).await.unwrap();
}
