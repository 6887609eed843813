//! `sandstorm bench`: the promised numbers, measured beside what a user would otherwise pick.
//!
//! It starts a server of its own and speaks HTTP to it, as any client would. What it is compared with is started by the
//! bench directly, because that is how it is used. See `bench/README.md` for the method.

mod arguments;
mod assistants;
mod command;
mod density;
mod figures;
mod http;
mod language;
mod load;
mod machine;
mod mounts;
mod ours;
mod peers;
mod place;
mod progress;
mod promises;
mod report;
mod rounds;
mod route;
mod samples;
mod server;
mod starts;
mod trace;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::complaint::misuse;
pub(crate) use arguments::BenchCommand;
use arguments::{BenchTopic, Extent, Traceable};
use density::mebibytes;
use figures::{Figures, Memory, Throughput};
use language::Language;
use load::{Turn, Turns};
use machine::Clock;
use mounts::Mounts;
use peers::Peers;
use place::Place;
use report::Report;
use server::Server;

/// Names that `--only` takes.
const PARTS: [&str; 24] = [
    "fresh",
    "context",
    "exec",
    "create",
    "first",
    "files",
    "numpy",
    "fork",
    "mcp",
    "bare",
    "run",
    "bwrap",
    "runc",
    "runsc",
    "docker",
    "podman",
    "python",
    "node",
    "bash",
    "burst",
    "throughput",
    "memory",
    "density",
    "server",
];

pub(crate) fn bench(command: &BenchCommand) -> anyhow::Result<ExitCode> {
    if let Some(BenchTopic::Route(command)) = &command.topic {
        return route::route(command);
    }
    if let Some(unknown) =
        command.only.iter().find(|name| !PARTS.contains(&name.as_str()) && !name.contains('-'))
    {
        return Err(misuse(format!(
            "there is no part `{unknown}` of the bench; there are {}",
            PARTS.join(", ")
        )));
    }
    sandstorm_jail::launcher::allow_descriptors();
    let binary = match &command.binary {
        Some(binary) => {
            binary.canonicalize().with_context(|| format!("could not find {}", binary.display()))?
        }
        None => std::env::current_exe().context("could not find this program")?,
    };
    let place = Place::make()?;
    let binary = reachable(&binary, &place)?;
    if let Some(what) = command.trace {
        return show_stages(command, what, &binary, &place);
    }
    let report = measure(command, &binary, &place)?;
    if let Some(folder) = &command.keep {
        report.keep(folder)?;
    }
    let text = if command.json { report.json()? + "\n" } else { report.markdown() };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    for failure in &report.figures.failures {
        progress::done(&format!("not measured: {failure}"));
    }
    Ok(if report.figures.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_stages(
    command: &BenchCommand,
    what: Traceable,
    binary: &Path,
    place: &Place,
) -> anyhow::Result<ExitCode> {
    let trace = trace::measure(what, binary, place, command.extent())?;
    let text = if command.json { trace.json()? } else { trace.table() };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    let missing = trace.missing(what);
    if !missing.is_empty() {
        progress::done(&format!("no span was seen of: {}", missing.join(", ")));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A copy that every user can reach: a checkout may lie in somebody's home, and the server gives up root's rights.
fn reachable(binary: &Path, place: &Place) -> anyhow::Result<PathBuf> {
    let copy = place.folder("bin")?.join("sandstorm");
    std::fs::copy(binary, &copy).with_context(|| format!("could not copy {}", binary.display()))?;
    Ok(copy)
}

fn measure(command: &BenchCommand, binary: &Path, place: &Place) -> anyhow::Result<Report> {
    let extent = command.extent();
    let wants = |name: &str| command.wants(name);
    let mut facts = machine::facts();
    facts.push(("load before".to_owned(), machine::load()));
    let clock = Clock::find()?;
    facts.push(("processor time by".to_owned(), clock.describe().to_owned()));
    facts.push((
        "used by others while idle".to_owned(),
        format!("{:.1} % of one core", clock.background * 100.0),
    ));
    if !clock.is_quiet() {
        let warning =
            "somebody else uses this machine: do not believe these figures, repeat them on a quiet one";
        progress::done(warning);
        facts.push(("warning".to_owned(), warning.to_owned()));
    }
    let mut figures = Figures::default();
    if wants("server") {
        let starts =
            starts::measure(binary, place, extent.starts).context("a server could not be started")?;
        progress::done(&format!("{} starts of a server", extent.starts));
        figures.server = Some(starts);
    }
    let server = Server::start(binary, place.path().join("server"), &[])?;
    let version = command::CommandLine::from([binary]).and(["--version"]).told()?;
    facts.push(("sandstorm".to_owned(), version.trim().to_owned()));
    let mounts = Mounts::of(&server)?;
    let mut peers = Peers::find(binary, mounts, place, &wants)?;
    let mut cases = ours::cases(&server, &wants);
    cases.extend(assistants::cases(binary, place.path(), &server, &wants));
    cases.extend(peers.cases(&wants));
    let unsettled = rounds::measure(&mut cases, extent, &clock)?;
    let turns: usize = cases.iter().map(|case| case.samples.count()).sum();
    facts
        .push(("samples after which the machine did not rest".to_owned(), format!("{unsettled} of {turns}")));
    cases.into_iter().for_each(|case| figures.add(case));
    if wants("memory") {
        figures.memory = memory(&server, place.path(), &mut peers, &wants)?;
        progress::done("memory of one of each");
    }
    if wants("burst") {
        let burst = |request| load::burst(&clock, extent.burst, extent.bursts, &server.address, &request);
        figures.burst_create =
            part(&mut figures.failures, "burst of creates", burst(ours::sandbox_request(&server)));
        figures.burst_run = part(
            &mut figures.failures,
            "burst of runs",
            burst(ours::fresh_request(&server, Language::Python)),
        );
        progress::done("bursts");
    }
    if wants("throughput") {
        throughput(&server, &mut peers, extent, &clock, &mut figures);
    }
    if wants("density") {
        let density = density::measure(&server, place.path(), extent.sandboxes);
        figures.density = part(&mut figures.failures, "idle sandboxes", density);
        progress::done("idle sandboxes");
    }
    let counters = ["sandstorm_pool_hits_total", "sandstorm_pool_misses_total", "sandstorm_guests_total"];
    figures.counters =
        part(&mut figures.failures, "the server's counters", server.counters(&counters)).unwrap_or_default();
    let complaints: BTreeSet<String> = server.log().lines().map(str::to_owned).collect();
    facts.push(("complaints in the server's log".to_owned(), complaints.len().to_string()));
    facts.extend(std::mem::take(&mut peers.versions));
    facts.push(("load after".to_owned(), machine::load()));
    server.stop()?;
    Ok(Report::new(facts, method(extent), figures))
}

/// The result of a part of ours, or its failure for the list.
fn part<T>(failures: &mut Vec<String>, name: &str, result: anyhow::Result<T>) -> Option<T> {
    result.map_err(|error| failures.push(format!("{name}: {error:#}"))).ok()
}

fn throughput(server: &Server, peers: &mut Peers, extent: Extent, clock: &Clock, figures: &mut Figures) {
    let request = ours::fresh_request(server, Language::Python);
    for &clients in extent.clients {
        progress::tell(&format!("{clients} clients"));
        let bwrap = peers.lines("bwrap").unwrap_or_else(|| Err(anyhow::anyhow!("not asked for")));
        let bwrap = bwrap.and_then(|mut lines| lines.printing(Language::Python));
        // In turns, so that a machine that is slow for some seconds is slow for both.
        let (mut ours, mut theirs) = (Ok(Turns::default()), bwrap.map(|line| (line, Turns::default())));
        for turn in Turn::several(extent.load_seconds) {
            ours = ours.and_then(|mut all| {
                all.add(load::of_requests(clock, clients, turn, &server.address, &request)?);
                Ok(all)
            });
            theirs = theirs.and_then(|(line, mut all)| {
                all.add(load::of_commands(clock, clients, turn, &line)?);
                Ok((line, all))
            });
        }
        let ours = ours.and_then(|all| all.load(clients));
        if let Some(ours) = part(&mut figures.failures, "throughput", ours) {
            let bwrap = theirs.and_then(|(_, all)| all.load(clients)).map_err(|error| format!("{error:#}"));
            figures.throughput.push(Throughput { clients, ours, bwrap });
        }
        progress::done(&format!("throughput with {clients} clients"));
    }
}

/// Memory of one Python that waits, by each, and of one of our sandboxes with a living interpreter.
fn memory(
    server: &Server,
    folder: &Path,
    peers: &mut Peers,
    wants: &dyn Fn(&str) -> bool,
) -> anyhow::Result<Vec<Memory>> {
    let mut rows = Vec::new();
    if wants("context") {
        let before = machine::family(folder);
        let mut connection = server.connect()?;
        let sandbox = ours::new_sandbox(server, &mut connection)?;
        ours::new_context(server, &mut connection, &sandbox)?;
        let new = machine::family(folder).difference(&before).copied().collect();
        let mib = Some(mebibytes(machine::proportional_memory(&new)));
        connection.send(&server.request("DELETE", &sandbox, &serde_json::Value::Null))?.good()?;
        rows.push(Memory {
            name: "context".to_owned(),
            title: "python: sandstorm, idle context".to_owned(),
            mib,
            error: None,
        });
    }
    for peer in ["bare", "bwrap", "runc", "runsc", "docker", "podman"] {
        let name = format!("{peer}-python");
        if !wants(&name) {
            continue;
        }
        let Some(lines) = peers.lines(peer) else { continue };
        let measured = lines.and_then(|mut lines| lines.memory(Language::Python));
        let (mib, error) = match measured {
            Ok(bytes) => (Some(mebibytes(bytes)), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        rows.push(Memory { name, title: format!("python: {}", peers::title(peer)), mib, error });
    }
    Ok(rows)
}

fn method(extent: Extent) -> Vec<String> {
    let rounds = format!(
        "The cases take turns in {} rounds, and each round starts with another case; {} rounds before them are not counted. A \
         quick case gives up to five samples in a turn, one that takes longer than 120 ms takes part in every fourth round: \
         `n` is what there is of each.",
        extent.rounds, extent.warm_up
    );
    let load = format!(
        "Sustained: each client sends its next request when it has its answer, for {} s; bwrap is started by as \
         many threads. The two take turns, each after a tenth of that time that is not counted, in which what was made ahead is \
         used up. Client and server share the machine.",
        extent.load_seconds
    );
    [
        "One run on one machine; figures of different runs are not comparable, ratios within one are.",
        "Ours is a server that the bench started, asked over HTTP/1.1 on a kept connection; the time is from before the \
         request is written until its answer is read, which has to hold what the program printed. Quotas are out of the way, \
         walls, limits, records and audit are on as always.",
        "Theirs is a command, from its spawn until its exit with its output read. bwrap, runc, runsc, docker and podman show \
         the program the same trees as a jail does, read off a jail at the start; docker and podman keep their own `/proc`, \
         `/dev` and masks. docker's daemon is the bench's own, and so is its image of empty folders.",
        &rounds,
        "After each sample the machine comes to rest before the next, for at most 100 ms: what goes on behind an answer is not \
         paid by the next case. The rows of one client that does not wait are under \"sustained\".",
        "Processor time is that of the whole machine, whoever used it, less the bench's own and less what the machine uses \
         when idle; work after the answer is in it, such as taking a sandbox down or making one in advance.",
        "Memory of one that waits: the proportional share (PSS) of every process that is there with it and was not before.",
        &load,
    ]
    .map(str::to_owned)
    .to_vec()
}
