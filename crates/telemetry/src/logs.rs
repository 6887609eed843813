//! Log lines, on standard error: for people or as JSON.

mod json;

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::registry::Registry;

use crate::config::{LogFormat, TelemetryConfig};

/// Libraries whose chatter below a warning says nothing to an operator. Those that carry telemetry would also report on
/// the sending of their own reports.
const QUIET: [&str; 8] = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls", "sqlx", "opentelemetry"];

/// Libraries that call it an error when a client goes away, which clients do all day: only who looks for errors hears them.
const UNHEARD: [&str; 1] = ["rmcp"];

pub(crate) fn layer<W>(config: &TelemetryConfig, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = filter(config.log_level);
    let lines = fmt::layer().with_writer(writer);
    match config.log_format {
        LogFormat::Pretty => {
            let colours = config.colours && std::io::stderr().is_terminal();
            lines.with_ansi(colours).with_filter(filter).boxed()
        }
        LogFormat::Json => {
            let lines = lines.with_ansi(false).fmt_fields(fmt::format::JsonFields::new());
            lines.event_format(json::FlatJson).with_filter(filter).boxed()
        }
    }
}

fn filter(level: Level) -> FilterFn<impl Fn(&Metadata<'_>) -> bool> {
    // Spans down to `info` are kept even where only warnings are written: they carry the request's id.
    let most = level.max(Level::INFO);
    filter_fn(move |metadata| admits(metadata, level)).with_max_level_hint(LevelFilter::from_level(most))
}

fn admits(metadata: &Metadata<'_>, level: Level) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    if UNHEARD.contains(&library) && level < Level::DEBUG {
        return false;
    }
    let quiet = QUIET.contains(&library);
    let least = match (quiet, metadata.is_span()) {
        (true, _) => level.min(Level::WARN),
        (false, true) => level.max(Level::INFO),
        (false, false) => level,
    };
    *metadata.level() <= least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::logged;

    fn config(log_format: LogFormat, log_level: Level) -> TelemetryConfig {
        TelemetryConfig { log_format, log_level, ..TelemetryConfig::default() }
    }

    fn work() {
        let request = tracing::info_span!("request", request_id = "req_1", route = "/v1/runs");
        request.in_scope(|| {
            tracing::info_span!("create", sandbox = "sbx_1").in_scope(|| {
                tracing::info!(count = 3, quoted = %"a\"b\nc", "made it");
                tracing::warn!(level = "odd", "careful");
            });
        });
        tracing::info!(target: "h2::codec", "chatter");
        tracing::debug!("detail");
    }

    #[test]
    fn json_lines_hold_the_fields_of_all_spans() {
        let lines = logged(config(LogFormat::Json, Level::INFO), work);
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let line = &lines[0];
        assert_eq!(line["message"], "made it");
        assert_eq!((&line["level"], &line["count"]), (&"INFO".into(), &3.into()));
        assert_eq!(line["quoted"], "a\"b\nc");
        assert_eq!((&line["request_id"], &line["sandbox"]), (&"req_1".into(), &"sbx_1".into()));
        assert_eq!((&line["route"], &line["span"]), (&"/v1/runs".into(), &"create".into()));
        assert!(line["target"].as_str().unwrap().starts_with("sandstorm_telemetry"));
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
        // A field cannot pass itself off as the line's own level.
        assert_eq!((&lines[1]["level"], &lines[1]["field.level"]), (&"WARN".into(), &"odd".into()));
    }

    #[test]
    fn a_warning_keeps_its_request_when_only_warnings_are_written() {
        let text = logged(config(LogFormat::Json, Level::WARN), work);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("\"request_id\":\"req_1\"") && text.contains("careful"), "{text}");
    }

    #[test]
    fn lines_for_people_have_no_colours_off_a_terminal() {
        let text = logged(config(LogFormat::Pretty, Level::DEBUG), work);
        assert!(text.contains("request_id=\"req_1\"") && text.contains("detail"), "{text}");
        assert!(!text.contains("chatter"), "{text}");
        if !std::io::stderr().is_terminal() {
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
    }
}
