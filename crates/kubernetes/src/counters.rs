//! What the kernel counted for a pod, read inside by the agent's program: the cluster tells nobody.
//!
//! So it is the sandbox's own word. It decides only what the sandbox itself is told about its end.

use std::time::Duration;

use sandstorm_agent::protocol::{Ending, Program, Stream, Task};
use sandstorm_agent_client::{AgentClient, TaskEvent, lost};
use sandstorm_provider::{Error, Result, Usage};
use sandstorm_types::{ByteSize, ErrorKind};

use crate::config::{Config, Scratch};
use crate::pod::AGENT_DIR;

/// Longest answer that makes sense, and how long it may take.
const MOST: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) memory_kills: u64,
    cpu_microseconds: u64,
    memory: u64,
    peak_memory: u64,
    processes: u64,
    disk: u64,
    inodes: u64,
}

/// Reads the counters of the sandbox that this agent is in.
pub(crate) async fn read(agent: &AgentClient) -> Result<Counters> {
    let late = |_| Error::new(ErrorKind::Provider, "the counters of the sandbox did not come in time");
    let text = tokio::time::timeout(PATIENCE, ask(agent)).await.map_err(late)??;
    Ok(parse(&text))
}

async fn ask(agent: &AgentClient) -> Result<String> {
    let argv = [&format!("{AGENT_DIR}/agent"), "pod", "count", "/workspace"].map(str::to_owned);
    let program = Program { argv: argv.into(), cwd: "/".to_owned(), ..Program::default() };
    let mut handle = agent.start_with(Task::Program(program), None, &[]).map_err(lost)?;
    let mut text = Vec::new();
    while let Some(event) = handle.next().await {
        match event {
            TaskEvent::Output { stream: Stream::Output, bytes } if text.len() + bytes.len() <= MOST => {
                text.extend_from_slice(&bytes);
            }
            TaskEvent::Exited { ending: Ending::Code(0), .. } => {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            TaskEvent::Exited { .. } | TaskEvent::Failed(_) => break,
            TaskEvent::Started(_) | TaskEvent::Closed | TaskEvent::Output { .. } => {}
        }
    }
    Err(Error::new(ErrorKind::Provider, "the counters of the sandbox cannot be read"))
}

/// Lines of a name and a number; what is not known is left out.
fn parse(text: &str) -> Counters {
    let mut counters = Counters::default();
    for line in text.lines().take(64) {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let Ok(number) = number.parse() else { continue };
        match name {
            "memory_kills" => counters.memory_kills = number,
            "cpu_microseconds" => counters.cpu_microseconds = number,
            "memory" => counters.memory = number,
            "peak_memory" => counters.peak_memory = number,
            "processes" => counters.processes = number,
            "disk" => counters.disk = number,
            "inodes" => counters.inodes = number,
            _ => {}
        }
    }
    counters
}

impl Counters {
    /// Processor time that all programs of the pod have used.
    pub(crate) fn cpu(&self) -> Duration {
        Duration::from_micros(self.cpu_microseconds)
    }

    pub(crate) fn usage(&self, config: &Config) -> Usage {
        // Elsewhere it is the node's whole disk.
        let own_disk = config.scratch == Scratch::Memory;
        // The waiting shell and its sleep, keeper, agent, the two threads of the relay and whoever counts are ours.
        let processes = self.processes.saturating_sub(7);
        Usage {
            cpu: self.cpu(),
            memory: ByteSize::bytes(self.memory),
            peak_memory: ByteSize::bytes(self.peak_memory),
            processes: u32::try_from(processes).unwrap_or(u32::MAX),
            disk: ByteSize::bytes(if own_disk { self.disk } else { 0 }),
            inodes: if own_disk { self.inodes } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_counts_for_nothing() {
        let read = parse("memory_kills 2\nmemory x\nwhat 5\n\ncpu_microseconds 1500\nmemory -1\ndisk 7 8\n");
        assert_eq!(read, Counters { memory_kills: 2, cpu_microseconds: 1500, ..Counters::default() });
    }
}
