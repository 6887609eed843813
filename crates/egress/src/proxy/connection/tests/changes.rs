//! What a change of policy does to what is there already.

use super::*;

/// Serves one connection in the background, as the proxy does.
async fn connect(world: &World, original: SocketAddr) -> (TcpStream, JoinSet<()>) {
    let (client, accepted) = pair().await;
    let shared = Arc::clone(&world.shared);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { serve_to(&shared, accepted, original).await });
    (client, tasks)
}

async fn sent(world: &World, bytes: u64) {
    let enough = async {
        while world.shared.counters().bytes_up < bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), enough).await.expect("the bytes never passed");
}

async fn assert_cut(mut client: TcpStream, mut tasks: JoinSet<()>, world: &World) {
    let ended = tokio::time::timeout(Duration::from_secs(60), client.read_to_end(&mut Vec::new())).await;
    assert!(ended.expect("the connection is still alive").is_err());
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(last_reason(world), Refusal::PolicyChanged);
}

#[tokio::test]
async fn what_is_no_longer_permitted_is_cut() {
    let (world, _server) = world(allow(&["example.com:8080"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let (mut client, tasks) = connect(&world, synthetic(&world, "example.com", 8080)).await;
    client.write_all(b"\0").await.unwrap();
    sent(&world, 1).await;
    world.shared.set_policy(allow(&["example.com:8080,443"]));
    client.write_all(b"y").await.unwrap();
    sent(&world, 2).await;
    world.shared.set_policy(allow(&["example.com:443"]));
    assert_cut(client, tasks, &world).await;
}

#[tokio::test]
async fn a_connection_on_its_way_is_cut_before_anyone_hears_of_it() {
    let (world, _server) = world(allow(&["example.com"])).await;
    world.resolves("example.com.", &[PUBLIC]);
    let (mut client, tasks) = connect(&world, synthetic(&world, "example.com", 443)).await;
    let hello = hello_for(&["example.com"]);
    client.write_all(&hello[..20]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    world.shared.set_policy(NetworkPolicy::None);
    let _ = client.write_all(&hello[20..]).await;
    assert_cut(client, tasks, &world).await;
    assert_silent(&world);
}

#[tokio::test]
async fn addresses_of_names_that_are_denied_now_lead_nowhere() {
    let (world, _server) = world(allow(&["a.test:8080", "b.test:8080"])).await;
    for name in ["a.test.", "b.test."] {
        world.resolves(name, &[PUBLIC]);
    }
    let (a, b) = (synthetic(&world, "a.test", 8080), synthetic(&world, "b.test", 8080));
    world.shared.set_policy(allow(&["b.test:8080"]));
    refused(&world, a, &[b"\0"], Refusal::NotAllowed).await;
    assert_silent(&world);
    attempt(&world, b, &[b"\0"]).await.unwrap();
    world.shared.set_policy(allow(&["a.test:8080"]));
    attempt(&world, a, &[b"\0"]).await.unwrap();
    refused(&world, b, &[b"\0"], Refusal::NotAllowed).await;
}

#[tokio::test]
async fn what_nobody_looked_into_ends_when_names_begin_to_count() {
    let (world, _server) = world(NetworkPolicy::Open).await;
    world.resolves("example.com.", &[PUBLIC]);
    let hello = hello_for(&["evil.example"]);
    let (mut client, tasks) = connect(&world, synthetic(&world, "example.com", 443)).await;
    client.write_all(&hello).await.unwrap();
    sent(&world, hello.len() as u64).await;
    world.shared.set_policy(allow(&["example.com"]));
    assert_cut(client, tasks, &world).await;
}

#[tokio::test]
async fn the_operators_reach_is_lost_with_the_rule() {
    let rule: sandstorm_types::Rule = "index.example:3141".parse().unwrap();
    let (world, _server) = world(list(vec![rule.clone().internal()])).await;
    world.resolves("index.example", &["127.0.0.1"]);
    let (mut client, tasks) = connect(&world, synthetic(&world, "index.example", 3141)).await;
    client.write_all(b"\0").await.unwrap();
    sent(&world, 1).await;
    world.shared.set_policy(list(vec![rule]));
    assert_cut(client, tasks, &world).await;
}

#[tokio::test]
async fn a_filter_cuts_what_it_denies_and_what_wants_other_headers() {
    let filter =
        |text: &str| serde_json::from_str::<NetworkPolicy>(&format!("{{\"filter\": {text}}}")).unwrap();
    let (world, _server) = world(NetworkPolicy::Open).await;
    world.resolves("a.test.", &[PUBLIC]);
    let (mut client, tasks) = connect(&world, synthetic(&world, "a.test", 8080)).await;
    client.write_all(b"x").await.unwrap();
    sent(&world, 1).await;
    world.shared.set_policy(filter(r#"{"deny": ["1.1.1.1/32"]}"#));
    client.write_all(b"y").await.unwrap();
    sent(&world, 2).await;
    world.shared.set_policy(filter(r#"{"deny": ["93.184.216.34/32"]}"#));
    assert_cut(client, tasks, &world).await;
    world.shared.set_policy(NetworkPolicy::Open);
    let (mut client, tasks) = connect(&world, synthetic(&world, "a.test", 80)).await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n").await.unwrap();
    sent(&world, 10).await;
    world.shared.set_policy(filter(r#"{"headers": [{"host": "a.test", "headers": {"X": "1"}}]}"#));
    assert_cut(client, tasks, &world).await;
}
