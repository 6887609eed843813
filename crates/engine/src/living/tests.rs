//! Where the counters of a sandbox come from: groups that are plain folders, and a launcher that is played here.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use sandstorm_jail::launcher::{Answer, Refusal, RefusalKind, Request};
use sandstorm_jail::packet;
use sandstorm_provider::{Events, Tasks};
use sandstorm_types::NetworkPolicy;
use tempfile::TempDir;

use super::*;
use crate::network::Surroundings;

/// What the launcher says that memory was used, so that its answers are known from others.
const TOLD: u64 = 77;

#[derive(Debug)]
pub(crate) struct World {
    groups: TempDir,
    pub(crate) living: Arc<Living>,
    asked: Arc<AtomicUsize>,
    refusal: Arc<Mutex<RefusalKind>>,
    _agent: UnixStream,
}

impl World {
    fn new() -> Self {
        Self::with(Arc::default(), None)
    }

    pub(crate) fn with(zygotes: Arc<Zygotes>, owner: Option<&str>) -> Self {
        let tasks = Tasks::default();
        let (agent, agent_end) = UnixStream::pair().unwrap();
        let (launcher, launcher_end) = packet::pair().unwrap();
        let groups = tempfile::tempdir().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let refusal = Arc::new(Mutex::new(RefusalKind::Host));
        let (counted, refused) = (Arc::clone(&asked), Arc::clone(&refusal));
        std::thread::spawn(move || play(&launcher_end, &counted, &refused));
        let id = SandboxId::random();
        let surroundings = Surroundings::new(Vec::new(), Vec::new(), Events::default(), tasks.clone());
        let living = Living::new(Birth {
            id,
            jail: "jail".to_owned(),
            joinable: None,
            owner: owner.map(str::to_owned),
            zygotes,
            own_places: true,
            guests: Vec::new(),
            spec: SandboxSpec::default(),
            agent: AgentClient::new(agent_end.into(), &tasks).unwrap(),
            launcher: LauncherClient::new(launcher, None, None, &tasks).unwrap(),
            meter: Some(meter(&groups)),
            disk: None,
            walls: Walls::default(),
            created_at: SystemTime::now(),
            journals: None,
            paused: false,
            egress: Egress::start(id, Vec::new(), &NetworkPolicy::None, &surroundings).unwrap(),
            on_memory: OnMemory::EndProcess,
        });
        Self { groups, living, asked, refusal, _agent: agent }
    }

    /// Has the launcher refuse guests with this kind from now on.
    pub(crate) fn refuse(&self, kind: RefusalKind) {
        *self.refusal.lock().unwrap() = kind;
    }

    async fn peak(&self) -> Option<u64> {
        self.living.counters(Extent::Verdict).await.peak_memory_bytes
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.groups.path().join(file), text).unwrap();
    }
}

/// A launcher that answers requests for counters and refuses guests.
fn play(socket: &OwnedFd, asked: &AtomicUsize, refusal: &Mutex<RefusalKind>) {
    while let Ok(Some((request, _))) = packet::receive::<Request>(socket.as_fd()) {
        let answer = match request {
            Request::Count { name } => {
                asked.fetch_add(1, Ordering::Relaxed);
                let counters =
                    Counters { peak_memory_bytes: Some(TOLD), memory_kills: Some(1), ..Counters::default() };
                Answer::Counted { name, counters: Some(counters) }
            }
            Request::Join { name, .. } => {
                let refusal = Refusal { kind: *refusal.lock().unwrap(), message: "no guest".to_owned() };
                Answer::NotJoined { name, refusal }
            }
            _ => continue,
        };
        packet::send(socket.as_fd(), &answer, &[]).unwrap();
    }
}

fn meter(groups: &TempDir) -> JailMeter {
    let dir = groups.path();
    fs::write(dir.join("memory.oom_control"), "oom_kill 0\n").unwrap();
    fs::write(dir.join("memory.max_usage_in_bytes"), "4096\n").unwrap();
    fs::write(dir.join("cgroup.events"), "populated 1\n").unwrap();
    let groups = serde_json::json!({
        "own": dir.join("cgroup.events"),
        "memory": { "dir": dir, "on_v1": true },
        "processes": null,
        "cpu_time": null,
        "used_before": { "secs": 0, "nanos": 0 },
    });
    let scratch = fs::File::open(dir).unwrap().into();
    JailMeter::take(
        Some(serde_json::from_value(groups).unwrap()),
        &mut vec![scratch],
        &crate::meter::GaugeShelf::default(),
    )
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_asked_for_what_can_be_read() {
    let world = World::new();
    assert_eq!(world.peak().await, Some(4096));
    assert_eq!(world.asked(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_launcher_is_asked_for_what_cannot_be_read() {
    let world = World::new();
    fs::remove_file(world.groups.path().join("cgroup.events")).unwrap();
    assert_eq!(world.peak().await, Some(TOLD), "the groups may be another jail's");
    let world = World::new();
    world.write("memory.max_usage_in_bytes", "much");
    assert_eq!(world.peak().await, Some(TOLD));
    let world = World::new();
    world.living.stop_reading();
    assert_eq!(world.peak().await, Some(TOLD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_launcher_hears_of_each_end_for_want_of_memory() {
    let world = World::new();
    world.write("memory.oom_control", "oom_kill 1\n");
    assert_eq!(world.peak().await, Some(TOLD));
    world.living.blame.note(Tally { memory_kills: 1, process_refusals: 0 });
    assert_eq!(world.peak().await, Some(4096), "it has seen that one");
    assert_eq!(world.asked(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_made_while_no_zygote_worked_takes_guests_later() {
    let python = ZygoteConfig {
        name: "python".to_owned(),
        interpreter: "/usr/bin/python3".into(),
        preload: Vec::new(),
        known: Vec::new(),
    };
    let zygotes = Arc::new(Zygotes::new(vec![python.clone()]));
    while zygotes.for_anything("me").is_some() {
        zygotes.failed("python", "me", "no room");
    }
    let (kept, single) =
        (World::with(Arc::clone(&zygotes), Some("me")), World::with(Arc::clone(&zygotes), None));
    assert_eq!(kept.living.joinable(), None);
    zygotes.worked("python", "me");
    assert_eq!(kept.living.joinable(), Some(&Joinable::of(&python, "me".to_owned())));
    assert_eq!(single.living.joinable(), None, "that one was never to have any");
}
