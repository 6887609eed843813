//! Log lines of Sandstorm itself, on standard error.

use sandstorm_config::{Loaded, LogFormat, LogLevel, Origin};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

use crate::complaint::paints;

/// Starts logging for a command that does one thing and ends. Its output is what the caller came for, so unless a level
/// was asked for only warnings are written. Starts no thread: the launcher may still have to be forked.
pub(crate) fn start(loaded: &Loaded) {
    let asked = loaded.provenance.of("log.level") != Origin::Default;
    let level = if asked { loaded.config.log.level } else { LogLevel::Warn };
    let lines = fmt().with_max_level(filter(level)).with_writer(std::io::stderr);
    // Whoever set up logging before us keeps it.
    let colours = paints(&std::io::stderr());
    let _ = match loaded.config.log.format {
        LogFormat::Pretty if asked => lines.with_ansi(colours).try_init(),
        // Between the lines of a program, when and where in our code says nothing to the reader.
        LogFormat::Pretty => lines.with_ansi(colours).without_time().with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
