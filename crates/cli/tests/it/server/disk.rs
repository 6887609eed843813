//! A disk that is full for a while: nothing is lost, nothing is ended, everything goes on when there is space.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::instance::Server;
use crate::support::{Place, Who, eventually};

#[test]
fn a_full_disk_passes() {
    fill_the_disk(1);
}

#[test]
#[ignore = "takes minutes"]
fn a_disk_that_is_full_again_and_again_passes() {
    fill_the_disk(25);
}

/// A file system of its own for a server's state.
struct Disk(PathBuf);

impl Disk {
    fn mount(place: &Place) -> Self {
        let state = place.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=160m", "tmpfs"]).arg(&state).status();
        assert!(mounted.unwrap().success(), "no file system could be mounted");
        Self(state)
    }

    /// Takes all the space that is left.
    fn fill(&self) -> Filler {
        let path = self.0.join("filler");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        for size in [1 << 20, 4096] {
            let piece = vec![7; size];
            while file.write_all(&piece).is_ok() {}
        }
        Filler(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = self.0.parent().map(std::fs::remove_dir_all);
    }
}

/// What takes the space. Some of what is written meanwhile may be given back, and is taken again.
struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn fill_the_disk(times: u64) {
    let place = Place::new();
    let disk = Disk::mount(&place);
    let mut server = Server::within(Who::Root, place, &[("SANDSTORM_SANDBOX_IDLE_TIMEOUT", "1h")]);
    let reserve = server.state().join("serve/spool/reserve");
    eventually("something is set aside", || reserve.exists());
    let path = server.sandbox(&json!({ "lifetime": "2h", "limits": { "wall": "2h" } }));
    let made = server.post(&format!("{path}/contexts"), &json!({ "language": "python" })).expect(201);
    let context = format!("{path}/contexts/{}/execute", made["id"].as_str().unwrap());
    let cell = |server: &Server, code: &str| server.post(&context, &json!({ "code": code }));
    cell(&server, "x = 0").expect(200);
    let count = "n=0; while :; do n=$((n + 1)); echo $n; sleep 0.01; done";
    let started =
        server.post(&format!("{path}/exec"), &json!({ "command": count, "background": true })).expect(202);
    let exec = format!("{path}/execs/{}", started["id"].as_str().unwrap());
    let mut counted = count_on(&server, &exec, 0);
    for round in 1..=times {
        let filler = disk.fill();
        eventually("the server says that its disk is full", || {
            let ready = server.get("/readyz");
            ready.status == 503 && ready.json()["status"] == "disk"
        });
        let refused = server.post("/v1/runs", &json!({ "language": "python", "code": "1" }));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")), "{}", refused.text());
        assert_eq!(server.post("/v1/sandboxes", &json!({})).status, 503);
        assert_eq!(cell(&server, "x += 100").status, 503);
        eventually("the program waits for space", || held(&server) > 0);
        if round % 2 == 1 {
            // What it set aside lets the next one start, which has no more space than this one.
            server.kill();
            server.restart();
            std::mem::forget(disk.fill());
            eventually("the next server says it, too", || server.get("/readyz").status == 503);
        }
        // Long enough for everything that tries again to have tried.
        std::thread::sleep(Duration::from_millis(500));
        drop(filler);
        eventually("there is space again", || server.get("/readyz").status == 200);
        let view = server.get(&exec).expect(200);
        assert_eq!(
            (&view["running"], &view["status"]),
            (&json!(true), &json!(null)),
            "round {round}: {view:#}"
        );
        let said = cell(&server, "x += 1\nx").expect(200);
        assert_eq!(said["results"][0]["data"]["text/plain"], round.to_string(), "round {round}: {said:#}");
        let run =
            server.post("/v1/runs", &json!({ "language": "python", "code": "print(6 * 7)" })).expect(200);
        assert_eq!(run["stdout"], "42\n");
        eventually("something is set aside again", || reserve.exists());
        counted = count_on(&server, &exec, counted);
    }
    assert!(
        length(&server.state().join("sandstorm.db-wal")) <= 20 << 20,
        "the log of the database is short again"
    );
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// How often the server said that a program waits.
fn held(server: &Server) -> usize {
    let log = std::fs::read_to_string(server.place.path().join("log")).unwrap_or_default();
    log.matches("waits until what it writes can be kept").count()
}

/// Hears the program from its first number, every one once and in order, until it has counted on for a while.
fn count_on(server: &Server, exec: &str, counted: u64) -> u64 {
    let (mut text, mut last) = (String::new(), 0);
    for event in server.stream(server.request("GET", format!("{exec}/events"))) {
        assert_ne!(event.data["type"], "end", "{event:?}");
        text.push_str(event.data["text"].as_str().unwrap_or_default());
        while let Some((line, rest)) = text.split_once('\n') {
            last += 1;
            assert_eq!(line.parse(), Ok(last), "{exec}");
            text = rest.to_owned();
        }
        if last > counted + 20 {
            return last;
        }
    }
    panic!("the program's events ended at {last}")
}
