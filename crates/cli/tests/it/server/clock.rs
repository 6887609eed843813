//! The wall clock is set while a server runs, by an hour in both directions.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::instance::Server;
use crate::support::{Place, Who, eventually};

/// Gives a program another wall clock: ahead of the real one by as many seconds as stand in a file.
const SET_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_AHEAD");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) ahead = map;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && clock == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
    return failed;
}
"#;

/// A wall clock that can be set.
struct WallClock {
    place: Place,
    ahead: File,
}

impl WallClock {
    fn new() -> Self {
        let place = Place::new();
        let source = place.write("clock.c", SET_CLOCK);
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(place.path().join("clock.so"))
            .arg(source)
            .status()
            .unwrap();
        assert!(built.success());
        let ahead = File::options().write(true).open(place.write("ahead", [0; 8])).unwrap();
        Self { place, ahead }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn set(&self, seconds: i64) {
        self.ahead.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

const HOUR: i64 = 3600;

#[test]
fn output_of_what_ended_stays_when_the_clock_is_set() {
    let clock = WallClock::new();
    let (library, ahead) = (clock.path("clock.so"), clock.path("ahead"));
    let settings = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_AHEAD", ahead.to_str().unwrap())];
    let server = Server::with(Who::Root, &settings, &[]);
    let sandbox = server.sandbox(&json!({ "lifetime": "5h" }));
    let write = json!({ "command": "head -c 1000000 /dev/zero | tr '\\0' x", "background": true });
    let exec = server.post(&format!("{sandbox}/exec"), &write).expect(202);
    let exec = format!("{sandbox}/execs/{}", exec["id"].as_str().unwrap());
    let length = || {
        let events = server.stream(server.request("GET", format!("{exec}/events")));
        events.map(|event| event.data["text"].as_str().unwrap_or_default().len()).sum::<usize>()
    };
    assert_eq!(length(), 1_000_000);
    clock.set(2 * HOUR);
    // The engine looks for what is too old every five seconds.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(length(), 1_000_000, "it ended a moment ago");
}

#[test]
fn a_clock_that_is_set_by_an_hour_ends_nothing_and_keeps_nothing_alive() {
    let clock = WallClock::new();
    let (library, ahead) = (clock.path("clock.so"), clock.path("ahead"));
    let settings = [("LD_PRELOAD", library.to_str().unwrap()), ("CLOCK_AHEAD", ahead.to_str().unwrap())];
    let server = Server::with(Who::Root, &settings, &[]);
    let state = |sandbox: &str| server.get(sandbox).expect(200)["state"].as_str().unwrap().to_owned();
    let ended = |sandbox: &str| ["terminating", "terminated"].contains(&state(sandbox).as_str());
    let lives = server.sandbox(&json!({ "lifetime": "30m", "on_end": "delete" }));
    let idle = server.sandbox(&json!({ "lifetime": "5h", "idle_timeout": "20m", "on_end": "delete" }));
    let year = |sandbox: &str| server.get(sandbox).expect(200)["expires_at"].as_str().unwrap().to_owned();
    let before = year(&lives);

    clock.set(HOUR);
    let made = server.sandbox(&json!({}));
    let at = server.get(&made).expect(200)["created_at"].as_str().unwrap().to_owned();
    assert!(at > before, "the server has not seen the other clock: {at}, {before}");
    // Whatever is due by now is seen to before this one is.
    let short = server.sandbox(&json!({ "lifetime": "1s", "on_end": "delete" }));
    eventually("the short one ends", || ended(&short));
    assert_eq!((state(&lives).as_str(), state(&idle).as_str()), ("ready", "ready"));
    // What callers are told is right by the clock that they see.
    assert!(year(&lives) > at, "{} is over by the clock of {at}", year(&lives));

    let short = server.sandbox(&json!({ "lifetime": "5s", "on_end": "delete" }));
    let unused = server.sandbox(&json!({ "lifetime": "5h", "idle_timeout": "5s", "on_end": "delete" }));
    clock.set(0);
    let listed = || {
        let listed = server.get("/v1/sandboxes").expect(200);
        let items = listed["items"].as_array().unwrap();
        items.iter().filter_map(|item| item["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let lists = |sandbox: &str| listed().iter().any(|id| sandbox.ends_with(id));
    eventually("what is short ends", || !lists(&short) && !lists(&unused));
    assert_eq!(state(&lives), "ready");
    assert_eq!(server.exec(&lives, "echo here")["stdout"], "here\n");
}

#[test]
fn a_clock_that_is_set_back_lets_idle_sandboxes_rest() {
    let clock = WallClock::new();
    let (library, ahead) = (clock.path("clock.so"), clock.path("ahead"));
    let server = Server::with(
        Who::Root,
        &[
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("CLOCK_AHEAD", ahead.to_str().unwrap()),
            ("SANDSTORM_ADMISSION_MEMORY", "1536MiB"),
            ("SANDSTORM_ADMISSION_WAIT", "30s"),
        ],
        &[],
    );
    clock.set(-HOUR);
    // Three can work at once, so the others come in only when those before them have given back what they do not use.
    let all: Vec<String> = (0..6).map(|_| server.sandbox(&json!({}))).collect();
    for sandbox in &all {
        assert_eq!(server.get(sandbox).expect(200)["state"], "ready");
    }
}
