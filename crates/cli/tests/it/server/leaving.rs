//! Clients that leave each kind of stream, over and over, beside another tenant's that stay.

mod scene;
mod stays;
mod ways;

use std::time::{Duration, Instant};

use self::scene::Scene;
use self::stays::Stays;
use self::ways::{Left, WAYS};
use super::faults::Random;
use super::http::Request;
use super::instance::Server;
use super::tenants::{new_key, on_state};
use crate::support::{PATIENCE, Who, eventually};

#[test]
fn who_leaves_a_stream_takes_its_own_along_and_nothing_else() {
    leave(1);
}

#[test]
#[ignore = "takes minutes"]
fn who_leaves_streams_for_minutes_leaves_nothing_behind() {
    leave(60);
}

/// Streams that one tenant may have open: as many as there are ways to open one, and some.
const SEATS: usize = 60;

fn leave(rounds: usize) {
    let seats = SEATS.to_string();
    let settings = [
        ("SANDSTORM_QUOTAS_OPEN_STREAMS", seats.as_str()),
        ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "1000000"),
        ("SANDSTORM_QUOTAS_RUNS_PER_MINUTE", "1000000"),
        ("SANDSTORM_QUOTAS_SANDBOXES", "100"),
    ];
    let server = Server::with(Who::Root, &settings, &[]);
    on_state(&server, &["tenants", "create", "stays"]);
    let (_, theirs) = new_key(&server, &["--tenant", "stays"]);
    ways::are_all_there_are(&server);
    let mut stays = Stays::open(Scene::new(&server, &theirs, 2));
    let scene = Scene::new(&server, &server.key, 1);
    let mut random = Random(0x51ed_2700_4b1d ^ rounds as u64);
    // What a first use makes for good is there before anybody counts.
    leave_all(&scene, &mut random, true);
    let lived = settled(&server, &scene);
    let before = Weight::of(&server);
    for _ in 0..rounds {
        leave_all(&scene, &mut random, true);
        leave_all(&scene, &mut random, false);
        stays.are_served();
    }
    assert_eq!(settled(&server, &scene), lived, "sandboxes of the one who left");
    let (began, mut now) = (Instant::now(), Weight::of(&server));
    while now.descriptors > before.descriptors + 16 || now.threads > before.threads + 8 {
        assert!(
            began.elapsed() < PATIENCE,
            "the server keeps what it had for those who left: {before:?} became {now:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
        now = Weight::of(&server);
    }
    for address in ["/readyz", "/healthz"] {
        assert_eq!(server.send(&Request::new("GET", address)).status, 200);
    }
    every_seat_is_free(&scene);
    let ticks = stays.end();
    let said = format!(
        "left {} kinds of streams {} times: {ticks} ticks came to those who stayed, none missing; {before:?} became {now:?}\n",
        WAYS.len(),
        rounds * 2,
    );
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/leaving-report.txt"), said).unwrap();
}

/// Opens every kind of stream at once and leaves each, with a reset or with an ordinary end.
fn leave_all(scene: &Scene, random: &mut Random, reset: bool) {
    let mut open: Vec<Left> = std::thread::scope(|scope| {
        let opening: Vec<_> = WAYS.iter().map(|way| scope.spawn(move || way.begin(scene))).collect();
        opening.into_iter().map(|one| one.join().unwrap()).collect()
    });
    while !open.is_empty() {
        let next = random.below(open.len() as u64) as usize;
        open.swap_remove(next).leave(reset);
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(20)));
        }
    }
    // The interpreter is free again before the next one wants it.
    eventually("nothing of what was left runs", || scene.running() == scene.lasting);
    eventually("no program of a client that left runs", || !ways::any_runs());
}

/// Waits until nothing runs any more that somebody left; gives how many sandboxes there are.
fn settled(server: &Server, scene: &Scene) -> u64 {
    eventually("nothing of what was left runs", || scene.running() == scene.lasting);
    let sandboxes = || server.get("/v1/usage").expect(200)["sandboxes"].as_u64().unwrap();
    eventually("the sandboxes of runs are gone", || sandboxes() <= 2);
    sandboxes()
}

/// As many streams as there are seats can be opened, and no more.
fn every_seat_is_free(scene: &Scene) {
    let open = || {
        let request = scene.request("GET", "/v1/events").header("accept", "text/event-stream");
        Some(scene.open(&request)).filter(|stream| stream.status == 200)
    };
    let mut all = Vec::new();
    eventually("every seat is free", || {
        while all.len() < SEATS
            && let Some(stream) = open()
        {
            all.push(stream);
        }
        all.len() == SEATS
    });
    assert!(open().is_none(), "there are more seats than the quota says");
}

/// What a server's process holds, but for the groups of sandboxes: of those that wait in its pool there are more or fewer.
#[derive(Debug, Clone, Copy)]
struct Weight {
    descriptors: usize,
    threads: usize,
}

impl Weight {
    fn of(server: &Server) -> Self {
        let all = |what: &str| {
            std::fs::read_dir(format!("/proc/{}/{what}", server.pid())).into_iter().flatten().flatten()
        };
        let is_counted = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|target| !target.starts_with("/sys/fs/cgroup"))
        };
        Self { descriptors: all("fd").filter(is_counted).count(), threads: all("task").count() }
    }
}
