//! Guests and operators that end, or wake up, in the middle.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandstorm_jail::transplant::{Guest, transplant};

use super::root;
use super::zygote::{TestGuest, Zygote};

const CASE: &str = "TRANSPLANT_TEST_PIDS";

/// Some delays fall before the copy, some into it, some behind it.
fn delays() -> impl Iterator<Item = Duration> + Clone {
    (0..12).map(|step| Duration::from_micros(step * step * 250))
}

fn large(zygote: &mut Zygote) -> TestGuest {
    let mut source = zygote.running();
    source.run("import os, time\nblocks = [bytearray(b'x' * (1 << 20)) for _ in range(16)]\ncells = 0");
    source
}

/// A copy is of one moment, or there is none.
#[test]
fn a_source_that_wakes_up() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = large(&mut zygote);
    let (mut copied, mut given_up) = (0, 0);
    let cell = "cells += 1\nfor block in blocks: block[0] = block[-1] = block[4096] = cells";
    // Again and again until one of them falls into a copy.
    for delay in delays().cycle().take(20 * delays().count()) {
        if copied + given_up >= delays().count() && given_up > 0 {
            break;
        }
        let mut destination = zygote.guest();
        let mut sender = source.side.try_clone().unwrap();
        let waker = std::thread::spawn(move || {
            std::thread::sleep(delay);
            let length = (cell.len() as u32).to_le_bytes();
            std::io::Write::write_all(&mut sender, &[&length, cell.as_bytes()].concat()).unwrap();
        });
        let outcome = source.copy_to(&destination);
        waker.join().unwrap();
        assert_eq!(source.answer().unwrap(), "done");
        source.wait_until_it_sleeps();
        match outcome {
            Ok(_) => {
                copied += 1;
                let same = "len({cells} | {n for block in blocks for n in (block[0], block[-1], block[4096])} - {120})";
                assert_eq!(destination.run(same), "1");
            }
            Err(error) => {
                given_up += 1;
                assert!(error.to_string().starts_with("the source is busy"), "{error}");
                let ended = destination.has_ended_after(Duration::from_secs(if error.destination_spoiled {
                    60
                } else {
                    0
                }));
                assert_eq!(ended, error.destination_spoiled);
            }
        }
    }
    assert!(given_up > 0, "none of {copied} was disturbed");
    // A byte holds no more than 255 of them.
    let cells = copied + given_up;
    assert_eq!(source.run("cells, {block[-1] for block in blocks}"), format!("({cells}, {{{cells}}})"));
    // Left alone, it is copied.
    let mut destination = zygote.guest();
    source.copy_to(&destination).unwrap();
    let found = destination.run("cells, {block[4096] for block in blocks}");
    assert_eq!(found, format!("({cells}, {{{cells}}})"));
}

#[test]
fn a_source_that_is_killed() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    for delay in delays() {
        let (source, destination) = (large(&mut zygote), zygote.guest());
        let killed = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(delay);
                source.kill();
            });
            source.copy_to(&destination)
        });
        if let Err(error) = killed {
            assert!(error.to_string().starts_with("the source ended"), "{error}");
        }
        assert!(source.has_ended_after(Duration::from_secs(60)));
    }
}

#[test]
fn a_destination_that_is_killed() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = large(&mut zygote);
    for delay in delays() {
        let destination = zygote.guest();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(delay);
                destination.kill();
            });
            source.copy_to(&destination)
        });
        assert!(destination.has_ended_after(Duration::from_secs(60)), "{outcome:?}");
        assert_eq!(source.run("len(blocks)"), "16");
    }
}

/// The operator's way in: nothing to do unless a parent named two guests.
#[test]
fn operator() {
    let Ok(pids) = std::env::var(CASE) else { return };
    let pids: Vec<i32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    let pidfds = [0, 1].map(|n| pidfd_open(Pid::from_raw(pids[n]).unwrap(), PidfdFlags::empty()).unwrap());
    let guest = |n: usize| Guest { pid: pids[n], pidfd: std::os::fd::AsFd::as_fd(&pidfds[n]), side: None };
    transplant(guest(0), guest(1)).unwrap();
}

/// Whoever copies is killed: the source goes on, and there is no half copy.
#[test]
fn an_operator_that_is_killed() {
    if !root() {
        return;
    }
    let mut zygote = Zygote::start();
    let mut source = large(&mut zygote);
    let (mut waiting, mut whole, mut gone) = (0, 0, 0);
    // The last one is not killed.
    for delay in delays().map(Some).chain([None]) {
        let mut destination = zygote.guest();
        let mut operator = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "disturbed::operator", "--nocapture"])
            .env(CASE, format!("{} {}", source.pid.as_raw_nonzero(), destination.pid.as_raw_nonzero()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        if let Some(delay) = delay {
            std::thread::sleep(delay);
            operator.kill().unwrap();
        }
        operator.wait().unwrap();
        assert_eq!(source.run("len(blocks)"), "16");
        if !destination.goes_on() {
            assert!(destination.has_ended_after(Duration::from_secs(60)));
            gone += 1;
        } else if destination.waits_for_its_job() {
            destination.begin();
            waiting += 1;
        } else {
            assert_eq!(destination.run("len(blocks)"), "16");
            whole += 1;
        }
    }
    assert!(whole > 0, "{waiting} waiting, {whole} whole, {gone} gone");
}
