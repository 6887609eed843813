//! `sandstorm doctor`: what this machine allows, and how to get what is missing.

mod check;
mod engines;
mod kernel;
mod matrix;
mod probe;
mod resources;
mod table;
mod verdict;
mod warmth;

use std::io::Write;
use std::process::ExitCode;

use sandstorm_config::Loaded;

use crate::arguments::{DoctorCommand, Shared};
use crate::complaint::{paints, safe};
use crate::local::Local;
use crate::{configuration, languages};
use check::{Check, Outcome};
use matrix::Matrix;
use probe::Probe;

/// Exits with 1 when sandboxes do not work here, or when a case of the matrix fails.
pub(crate) fn show(shared: &Shared, command: DoctorCommand) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    let engine = match Local::start(&loaded) {
        Ok(engine) => engine,
        Err(error) if command.matrix => return Err(error.context("no sandbox can start here")),
        Err(error) => {
            show_checks(Probe::failed(error), &loaded, command.json)?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let works = if command.matrix {
        show_matrix(&engine, command.json)
    } else {
        show_checks(Probe::make(&engine), &loaded, command.json)
    };
    engine.stop()?;
    Ok(if works? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_matrix(engine: &Local, json: bool) -> anyhow::Result<bool> {
    let matrix = Matrix::run(engine)?;
    let mut stdout = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut stdout, &matrix)?;
        writeln!(stdout)?;
    } else {
        let colours = paints(&stdout);
        matrix.write(&mut stdout, colours)?;
    }
    Ok(matrix.holds())
}

fn show_checks(probe: Probe<'_>, loaded: &Loaded, json: bool) -> anyhow::Result<bool> {
    let works = probe.made.is_ok();
    let mut checks = kernel::checks(probe.walls());
    checks.extend(resources::checks(loaded, probe.walls()));
    checks.extend(languages(&probe, loaded)?);
    checks.extend(engines::checks(&probe));
    checks.extend(warmth::checks(&loaded.config));
    let verdict = verdict::of(&probe, &checks);
    probe.end();
    let mut stdout = std::io::stdout().lock();
    if json {
        let report = serde_json::json!({ "works": works, "verdict": verdict, "checks": checks });
        serde_json::to_writer(&mut stdout, &report)?;
        writeln!(stdout)?;
        return Ok(works);
    }
    let colours = paints(&stdout);
    writeln!(stdout, "{}\n", safe(&verdict))?;
    table::write(&mut stdout, &checks, colours)?;
    writeln!(stdout, "\n{}", summary(&checks, works))?;
    Ok(works)
}

fn languages(probe: &Probe<'_>, loaded: &Loaded) -> anyhow::Result<Vec<Check>> {
    const GROUP: &str = "languages";
    let mut found = languages::detect(loaded);
    if let Some(engine) = probe.engine() {
        engine.runtime.block_on(languages::ask_versions(&*engine.provider, &mut found))?;
    }
    let check = |shown: languages::Shown| match shown.version {
        _ if !shown.available => Check::missing(GROUP, shown.name, "not installed", shown.install),
        Some(version) => Check::ok(GROUP, shown.name, version),
        None => Check::ok(GROUP, shown.name, "found; its version is not known"),
    };
    Ok(languages::describe(found).into_iter().map(check).collect())
}

fn summary(checks: &[Check], works: bool) -> String {
    let count = |outcome| checks.iter().filter(|check| check.outcome == outcome).count();
    let (broken, missing) = (count(Outcome::Broken), count(Outcome::Missing));
    match (works, broken, missing) {
        (false, ..) => "sandboxes do not work here: repair what is broken above".to_owned(),
        (true, 0, 0) => "sandboxes work here, with every wall".to_owned(),
        (true, 0, _) => format!("sandboxes work here; {missing} things above could be had too"),
        (true, ..) => format!("sandboxes work here, but {broken} things above are broken"),
    }
}
