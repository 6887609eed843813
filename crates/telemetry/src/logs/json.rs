//! One flat JSON object a line.
//!
//! The usual form nests the fields of spans in a list, where a search for `request_id` does not find them. Here all
//! fields stand side by side; an inner one covers an outer one of the same name.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

pub(super) struct FlatJson;

/// Names that say what the line is; a field of such a name is written with a prefix.
const OWN: [&str; 4] = ["timestamp", "level", "target", "span"];

impl<S> FormatEvent<S, JsonFields> for FlatJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut line) = fields;
        for span in context.event_scope().into_iter().flatten() {
            line.entry("span").or_insert_with(|| span.name().into());
            let extensions = span.extensions();
            let Some(recorded) = extensions.get::<FormattedFields<JsonFields>>() else { continue };
            let Ok(Value::Object(recorded)) = serde_json::from_str(recorded.fields.as_str()) else {
                continue;
            };
            for (name, value) in recorded {
                line.entry(own_or_prefixed(&name)).or_insert(value);
            }
        }
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        line.insert("timestamp".to_owned(), time.into());
        line.insert("level".to_owned(), event.metadata().level().as_str().into());
        line.insert("target".to_owned(), event.metadata().target().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn own_or_prefixed(name: &str) -> String {
    if OWN.contains(&name) { format!("field.{name}") } else { name.to_owned() }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(own_or_prefixed(field.name()), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
