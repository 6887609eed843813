//! The agent's program joins an agent, or starts one; whoever joined last is the host.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use sandstorm_agent::protocol::{Ending, Program, Stream, Task};
use sandstorm_agent_client::program::check_walls;
use sandstorm_agent_client::{AGENT, AgentClient, TaskEvent};
use sandstorm_provider::Tasks;
use tempfile::TempDir;

/// A folder with the agent's program, as a pod has one. What was started there ends with it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        // Written once, before any of the tests starts a process: a child that another test forks meanwhile would hold the
        // file open for writing, and the kernel executes no such file.
        static PROGRAM: OnceLock<TempDir> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("agent"), AGENT).unwrap();
            fs::set_permissions(dir.path().join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
            dir
        });
        let dir = tempfile::tempdir().unwrap();
        fs::hard_link(program.path().join("agent"), dir.path().join("agent")).unwrap();
        Self(dir)
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("agent.sock")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.0.path().join("agent"));
        command.arg("pod").args(words);
        command
    }

    /// Joins; the process that passes everything on comes along.
    async fn join(&self) -> (AgentClient, Child) {
        self.join_with(&[]).await
    }

    async fn join_with(&self, more: &[&str]) -> (AgentClient, Child) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let relay = self
            .command(&["join", self.socket().to_str().unwrap(), "64", "256"])
            .args(more)
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .stdout(Stdio::from(theirs))
            .spawn()
            .unwrap();
        let agent = AgentClient::new(ours.into(), &Tasks::default()).unwrap();
        within(agent.ready()).await.unwrap();
        agent.take_held();
        (agent, relay)
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.unwrap()
}

async fn wait(mut child: Child) -> ExitStatus {
    within(tokio::task::spawn_blocking(move || child.wait().unwrap())).await.unwrap()
}

/// Runs a line and gives what it wrote and how it ended; `None`: the agent went first.
async fn run(agent: &AgentClient, line: &str) -> (String, Option<Ending>) {
    let argv = ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
    let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let program = Program { argv, env, cwd: "/".to_owned(), ..Program::default() };
    let mut task = agent.start_with(Task::Program(program), None, &[]).unwrap();
    let mut out = Vec::new();
    while let Some(event) = within(task.next()).await {
        match event {
            TaskEvent::Started(walls) => check_walls(&walls).unwrap(),
            TaskEvent::Output { stream: Stream::Output, bytes } => out.extend_from_slice(&bytes),
            TaskEvent::Exited { ending, .. } => {
                return (String::from_utf8(out).unwrap(), Some(ending));
            }
            _ => {}
        }
    }
    (String::from_utf8(out).unwrap(), None)
}

/// Ends the agent, and with it its keeper.
async fn end(agent: &AgentClient) {
    assert_eq!(run(agent, "kill -9 $PPID; sleep 10").await.1, None);
    within(agent.lost()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_run_behind_walls() {
    let place = Place::new();
    let (agent, relay) = place.join().await;
    let (out, ended) =
        run(&agent, "echo hi; ulimit -n; grep -c '^Seccomp:.*2' /proc/self/status; exit 3").await;
    assert_eq!((out.as_str(), ended), ("hi\n256\n1\n", Some(Ending::Code(3))));
    end(&agent).await;
    assert!(wait(relay).await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_have_the_system_calls_that_were_chosen() {
    for (chosen, said) in [("", "had\n"), ("strict", "refused\n")] {
        let place = Place::new();
        let more: Vec<_> = chosen.split_whitespace().collect();
        let (agent, _relay) = place.join_with(&more).await;
        let lock = place.0.path().join("lock");
        let line = format!("flock {} true 2> /dev/null && echo had || echo refused", lock.display());
        assert_eq!(run(&agent, &line).await.0, said, "{chosen:?}");
        end(&agent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_is_the_host_and_an_agent_that_died_is_replaced() {
    let place = Place::new();
    let (first, relay) = place.join().await;
    let (own, _) = run(&first, "echo $PPID").await;
    let (second, _relay) = place.join().await;
    within(first.lost()).await;
    assert!(wait(relay).await.success(), "who was replaced goes away");
    assert_eq!(run(&second, "echo $PPID").await.0, own, "it is the same agent");
    end(&second).await;
    let (third, _relay) = place.join().await;
    assert_ne!(run(&third, "echo $PPID").await.0, own);
    end(&third).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_end_with_their_connection() {
    let place = Place::new();
    let (first, relay) = place.join().await;
    let mark = place.0.path().join("alive");
    let line = format!("while :; do touch {}; sleep 0.1; done", mark.display());
    let argv = ["/bin/sh", "-c", &line].map(str::to_owned).to_vec();
    let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let program = Program { argv, env, cwd: "/".to_owned(), ..Program::default() };
    let task = first.start(Task::Program(program), None).unwrap();
    while !mark.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.close();
    assert!(wait(relay).await.success(), "nobody speaks to it any more");
    let (second, _relay) = place.join().await;
    fs::remove_file(&mark).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!mark.exists(), "a program outlived its connection");
    drop(task);
    end(&second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_are_tried_and_counters_told() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let reach = |address: String| {
        wait(place.command(&["reach", &address, "500"]).stderr(Stdio::null()).spawn().unwrap())
    };
    assert!(reach(address.clone()).await.success());
    drop(listener);
    assert_eq!(reach(address).await.code(), Some(1));
    let counted = place.command(&["count", "/"]).output().unwrap();
    let counted = String::from_utf8(counted.stdout).unwrap();
    assert!(counted.lines().any(|line| line.starts_with("disk ")), "{counted}");
    assert_eq!(place.command(&["nonsense"]).status().unwrap().code(), Some(2));
}
