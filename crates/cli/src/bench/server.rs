//! A server of the bench's own, on a state directory of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::command::CommandLine;
use super::http::{Address, Connection, Request};

/// Whatever would refuse work because there is much of it: a bench is one tenant with one key.
const SETTINGS: [(&str, &str); 13] = [
    ("SANDSTORM_QUOTAS_SANDBOXES", "100000"),
    ("SANDSTORM_QUOTAS_CPUS", "100000"),
    ("SANDSTORM_QUOTAS_MEMORY", "100T"),
    ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "1000000"),
    ("SANDSTORM_QUOTAS_RUNS_PER_MINUTE", "1000000"),
    ("SANDSTORM_QUOTAS_OPEN_STREAMS", "10000"),
    ("SANDSTORM_ADMISSION_MEMORY", "100T"),
    ("SANDSTORM_ADMISSION_QUEUE", "100000"),
    ("SANDSTORM_SERVE_MAX_CONNECTIONS", "10000"),
    ("SANDSTORM_SERVE_MAX_CONNECTIONS_PER_ADDRESS", "10000"),
    // A connection that waits for its turn is not idle.
    ("SANDSTORM_SERVE_IDLE_TIMEOUT", "1h"),
    ("SANDSTORM_SERVE_HEADER_TIMEOUT", "1h"),
    ("SANDSTORM_LOG_LEVEL", "warn"),
];

/// How long a server may take to end everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) address: Address,
    /// From its start until it said that it answers.
    pub(super) ready: Duration,
    home: PathBuf,
}

impl Server {
    /// Starts one in a folder that is not there yet. `settings` come on top of the bench's own.
    pub(super) fn start(binary: &Path, home: PathBuf, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        std::fs::create_dir(&home).with_context(|| format!("could not make {}", home.display()))?;
        let log = std::fs::File::create(home.join("log")).context("could not make the log of the server")?;
        let line = CommandLine::from([binary]).and(["serve", "--listen", "127.0.0.1:0", "--state-dir"]);
        let mut command = line.and([home.join("state")]).command();
        command.envs(SETTINGS).envs(settings.iter().copied()).stdout(Stdio::piped()).stderr(log);
        let began = Instant::now();
        let mut child = command.spawn().context("the server could not be started")?;
        let mut lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut key = None;
        let mut line = String::new();
        loop {
            line.clear();
            if lines.read_line(&mut line).unwrap_or(0) == 0 {
                let _ = child.kill();
                let ended = child.wait()?;
                let said = std::fs::read_to_string(home.join("log")).unwrap_or_default();
                bail!("the server did not start ({ended}): {}", said.trim_end());
            }
            if let Some(word) = line.split_whitespace().find(|word| word.starts_with("ss_")) {
                key = Some(word.to_owned());
            }
            if let Some((_, port)) = line.trim_end().rsplit_once("http://127.0.0.1:") {
                let ready = began.elapsed();
                let port = port.parse().context("the server named no port")?;
                let key = key.context("the server made no key")?;
                // Somebody has to hold its standard output for as long as it lives.
                std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
                return Ok(Self { child, address: Address { port, key }, ready, home });
            }
        }
    }

    pub(super) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    pub(super) fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(&self.address)
    }

    pub(super) fn request(&self, method: &str, target: &str, body: &serde_json::Value) -> Request {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Request::new(&self.address, method, target, &body)
    }

    /// What it counted of these, each with its labels.
    pub(super) fn counters(&self, names: &[&str]) -> anyhow::Result<Vec<(String, f64)>> {
        let text =
            self.connect()?.send(&self.request("GET", "/metrics", &serde_json::Value::Null))?.good()?;
        let text = String::from_utf8(text).context("the metrics are no text")?;
        let wanted = |line: &&str| names.iter().any(|name| line.starts_with(name));
        let pairs = text.lines().filter(wanted).filter_map(|line| line.rsplit_once(' '));
        let mut counters: Vec<_> =
            pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect();
        counters.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(counters)
    }

    /// What it complained about.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    /// Ends it with all its sandboxes and its launcher.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // An interrupt means a stop that is meant to last.
        tell(&self.child, Signal::INT).context("the server could not be told to end")?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                self.child.kill()?;
                self.child.wait()?;
                bail!("the server did not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Sends a signal to a child that was not waited for yet.
pub(super) fn tell(child: &Child, signal: Signal) -> std::io::Result<()> {
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    Ok(pidfd_send_signal(handle, signal)?)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}
