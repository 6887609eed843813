//! What a run costs beside its program, and runs that cost nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sandstorm_control::server::{Quota, Settings};
use sandstorm_gateway::{GatewaySettings, ServeLimits};

use crate::world::{World, control_settings};

#[tokio::test]
async fn an_earlier_result_says_so() {
    let world = World::new().await;
    let body = r#"{"language": "bash", "code": "hi", "enforcement": "best_effort", "cache": true}"#;
    let first = world.call("POST", "/v1/runs", body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let first = first.json();
    assert!(first.get("cached").is_none() && first.get("cached_from").is_none(), "{first}");
    let second = world.call("POST", "/v1/runs", body).await;
    let location = second.headers["location"].to_str().unwrap().to_owned();
    let second = second.json();
    assert_eq!((&second["cached"], &second["cached_from"]), (&true.into(), &first["id"]));
    assert_eq!((&second["stdout"], &second["status"]), (&"hi".into(), &"ok".into()));
    let record = world.call("GET", &location, "").await.json();
    assert_eq!((&record["id"], &record["result"]["cached_from"]), (&second["id"], &first["id"]));
    let usage = world.call("GET", "/v1/usage", "").await.json();
    assert_eq!((&usage["runs"], &usage["cached_runs"]), (&1.into(), &1.into()));
    // Another tenant's key finds nothing of it.
    let request = world.request("POST", "/v1/runs").header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {}", world.stranger));
    let other = world.send(request, body).await.json();
    assert_eq!((&other["stdout"], other.get("cached")), (&"hi".into(), None));
    let networked = r#"{"language": "bash", "code": "hi", "network": "open", "cache": true}"#;
    world.call("POST", "/v1/runs", networked).await.refused(400);
}

/// Wall time of one run after the other over one connection, against a provider that does next to nothing; run it by
/// hand, in a release build.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn what_a_run_costs() {
    let quota = Quota { runs_per_minute: Some(1_000_000), ..control_settings().quota };
    let rules = Settings { quota, ..control_settings() };
    let world = World::with(GatewaySettings::default(), ServeLimits::default(), rules).await;
    let body = r#"{"language": "bash", "code": "print(1)", "enforcement": "best_effort"}"#;
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        world.address,
        world.key,
        body.len()
    );
    let health = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", world.address);
    let address = world.address;
    let client = move || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_nodelay(true).unwrap();
        let mut one = |request: &str| {
            let began = Instant::now();
            connection.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let mut piece = [0; 16 << 10];
            loop {
                let count = connection.read(&mut piece).unwrap();
                answer.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&answer);
                let Some(head) = text.find("\r\n\r\n") else { continue };
                let length = text[..head].lines().find_map(|line| line.strip_prefix("content-length: "));
                if answer.len() >= head + 4 + length.map_or(0, |length| length.parse().unwrap()) {
                    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
                    return began.elapsed();
                }
            }
        };
        for (name, request) in [("health", &health), ("run", &request)] {
            let mut times: Vec<Duration> = (0..2000).map(|_| one(request)).collect();
            times.drain(..200);
            times.sort_unstable();
            let at = |share: usize| times[times.len() * share / 100];
            println!("{name}: p50 {:?}, p90 {:?}, p99 {:?}", at(50), at(90), at(99));
        }
    };
    tokio::task::spawn_blocking(client).await.unwrap();
}
