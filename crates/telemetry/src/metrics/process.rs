//! What the process itself uses, read when somebody asks.

use std::fmt::{Display, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The process since the start of telemetry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    started: Instant,
    pub(crate) started_at: SystemTime,
}

impl Process {
    pub(crate) fn new() -> Self {
        Process { started: Instant::now(), started_at: SystemTime::now() }
    }

    /// Appends the metrics. One that cannot be read is left out.
    pub(crate) fn render(&self, text: &mut String) {
        let _ = write!(
            text,
            "# HELP sandstorm_build_info The version that runs.\n# TYPE sandstorm_build_info gauge\n\
             sandstorm_build_info{{version=\"{}\"}} 1\n\n",
            env!("CARGO_PKG_VERSION")
        );
        let uptime = self.started.elapsed().as_secs_f64();
        line(text, "sandstorm_uptime_seconds", "gauge", "Time since the server started.", uptime);
        let started = self.started_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        line(text, "process_start_time_seconds", "gauge", "When the server started, since 1970.", started);
        if let Some(bytes) = resident_bytes() {
            line(text, "process_resident_memory_bytes", "gauge", "Memory of the server's process.", bytes);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // Reading the directory holds one descriptor of its own.
            let count = entries.count().saturating_sub(1);
            line(text, "process_open_fds", "gauge", "Open descriptors of the server's process.", count);
        }
        if let Some(seconds) = cpu_seconds() {
            line(
                text,
                "process_cpu_seconds_total",
                "counter",
                "Processor time of the server's process.",
                seconds,
            );
        }
    }
}

/// A metric without labels.
pub(super) fn line(text: &mut String, name: &str, kind: &str, about: &str, value: impl Display) {
    let _ = write!(text, "# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}\n\n");
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn cpu_seconds() -> Option<f64> {
    /// What the kernel counts processor time in, whatever the hardware's own clock is.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may hold anything, brackets and spaces too; what follows the last bracket is plain.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 100_000 && bytes < 10_000_000_000));
        let before = cpu_seconds().unwrap();
        let end = Instant::now() + std::time::Duration::from_secs(60);
        while cpu_seconds().unwrap() <= before {
            assert!(Instant::now() < end, "this is no work");
        }
    }
}
