//! The tools: each describes itself and is listed here once, in the order in which clients see them.

mod execs;
mod files;
mod forks;
mod install;
mod languages;
mod more_files;
mod ports;
mod run_code;
mod sandboxes;
mod sandboxrunner;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolResult, JsonObject, Tool as Described, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::Answer;
use crate::call::Call;
use crate::refusal::Refusal;
use crate::settings::{McpSettings, Toolset};
pub(crate) use files::picture_kind;

/// One tool.
pub(crate) trait Tool: 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const DESCRIPTION: &'static str;
    const HINTS: Hints;
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    type Output: Serialize + JsonSchema + 'static;

    fn call(
        call: Call,
        input: Self::Input,
    ) -> impl Future<Output = Result<Answer<Self::Output>, Refusal>> + Send;
}

/// What a client may think of a tool before it asks its user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hints {
    pub(crate) read_only: bool,
    pub(crate) destructive: bool,
    pub(crate) idempotent: bool,
}

impl Hints {
    /// Changes nothing.
    pub(crate) const LOOKS: Self = Self { read_only: true, destructive: false, idempotent: true };
    /// Makes something that was not there.
    pub(crate) const ADDS: Self = Self { read_only: false, destructive: false, idempotent: false };
    /// May take away what was there, and doing it again changes nothing more.
    pub(crate) const REPLACES: Self = Self { read_only: false, destructive: true, idempotent: true };
    /// May do anything within its sandbox.
    pub(crate) const RUNS: Self = Self { read_only: false, destructive: true, idempotent: false };
}

type Run = fn(Call, JsonObject) -> BoxFuture<'static, Result<CallToolResult, Refusal>>;

/// A tool as it is listed.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) described: Described,
    set: Toolset,
    pub(crate) run: Run,
}

impl Entry {
    fn of<T: Tool>(set: Toolset) -> Self {
        let Hints { read_only, destructive, idempotent } = T::HINTS;
        let hints = ToolAnnotations::with_title(T::TITLE)
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            // What a sandbox may reach is the operator's choice, and nothing by default.
            .open_world(false);
        let described = Described::new(T::NAME, T::DESCRIPTION, JsonObject::new())
            .with_title(T::TITLE)
            .with_input_schema::<T::Input>()
            .with_output_schema::<T::Output>()
            .with_annotations(hints);
        let described = portable(described);
        Self { described, set, run: |call, arguments| Box::pin(run::<T>(call, arguments)) }
    }
}

/// Without the names that only Rust has for sizes of numbers: strict clients complain of each.
fn portable(mut tool: Described) -> Described {
    tool.input_schema = plain(&tool.input_schema);
    tool.output_schema = tool.output_schema.as_deref().map(plain);
    tool
}

fn plain(schema: &JsonObject) -> Arc<JsonObject> {
    let mut schema = schema.clone();
    schema.values_mut().for_each(forget_formats);
    Arc::new(schema)
}

fn forget_formats(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let of_a_number = |format: &Value| {
                let name = format.as_str().unwrap_or_default();
                name.starts_with("uint") || name.starts_with("int") || matches!(name, "float" | "double")
            };
            if object.get("format").is_some_and(of_a_number) {
                object.remove("format");
            }
            object.values_mut().for_each(forget_formats);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_formats),
        _ => {}
    }
}

async fn run<T: Tool>(call: Call, arguments: JsonObject) -> Result<CallToolResult, Refusal> {
    let input = serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let place = error.path().to_string();
        let place = if place == "." { String::new() } else { format!(" at `{place}`") };
        Refusal::argument(format!(
            "the arguments of {} are not as its schema says{place}: {}",
            T::NAME,
            error.inner()
        ))
    })?;
    Box::pin(T::call(call, input)).await.map(Answer::into_result)
}

/// The tools of a server, in a fixed order.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    entries: Vec<Entry>,
    by_name: BTreeMap<&'static str, usize>,
}

impl Tools {
    pub(crate) fn enabled(settings: &McpSettings) -> Self {
        let wanted = |entry: &Entry| {
            (entry.set == Toolset::Core || settings.toolsets.contains(&entry.set))
                && !settings.disabled.contains(entry.described.name.as_ref())
        };
        let mut entries: Vec<Entry> = all().into_iter().filter(wanted).collect();
        // Where two sets have a tool of one name, the later one serves both.
        let names: Vec<_> = entries.iter().map(|entry| entry.described.name.clone()).collect();
        let mut at = 0..;
        entries.retain(|entry| at.next().is_none_or(|at| !names[at + 1..].contains(&entry.described.name)));
        let names = entries.iter().enumerate();
        let by_name = names.filter_map(|(at, entry)| Some((static_name(entry)?, at))).collect();
        Self { entries, by_name }
    }

    pub(crate) fn describe(&self) -> Vec<Described> {
        self.entries.iter().map(|entry| entry.described.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|at| &self.entries[*at])
    }

    /// Names of all tools that there are, switched on or not.
    pub(crate) fn known() -> Vec<String> {
        let every = McpSettings { toolsets: Toolset::ALL.into(), ..McpSettings::default() };
        Self::enabled(&every).entries.into_iter().map(|entry| entry.described.name.into_owned()).collect()
    }
}

/// Names of all languages.
pub(crate) fn language_names() -> Vec<String> {
    languages::all().into_iter().map(|language| language.name).collect()
}

fn static_name(entry: &Entry) -> Option<&'static str> {
    match entry.described.name {
        std::borrow::Cow::Borrowed(name) => Some(name),
        std::borrow::Cow::Owned(_) => None,
    }
}

fn all() -> Vec<Entry> {
    use Toolset::{Core, Files, Forks, Packages};
    let own = vec![
        Entry::of::<run_code::RunCode>(Core),
        Entry::of::<sandboxes::Create>(Core),
        Entry::of::<sandboxes::List>(Core),
        Entry::of::<sandboxes::Get>(Core),
        Entry::of::<sandboxes::Delete>(Core),
        Entry::of::<execs::Exec>(Core),
        Entry::of::<execs::Poll>(Core),
        Entry::of::<execs::WriteStdin>(Core),
        Entry::of::<execs::Signal>(Core),
        Entry::of::<files::Read>(Core),
        Entry::of::<files::Write>(Core),
        Entry::of::<files::List>(Core),
        Entry::of::<files::Search>(Core),
        Entry::of::<ports::PortUrl>(Core),
        Entry::of::<more_files::Delete>(Files),
        Entry::of::<more_files::Move>(Files),
        Entry::of::<more_files::Upload>(Files),
        Entry::of::<more_files::Download>(Files),
        Entry::of::<forks::Fork>(Forks),
        Entry::of::<languages::Languages>(Packages),
        Entry::of::<install::Install>(Packages),
    ];
    own.into_iter().chain(sandboxrunner::entries()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_set_is_small_and_in_order() {
        let tools = Tools::enabled(&McpSettings::default());
        let names: Vec<_> = tools.entries.iter().map(|entry| entry.described.name.as_ref()).collect();
        assert_eq!(
            names,
            [
                "run_code",
                "sandbox_create",
                "sandbox_list",
                "sandbox_get",
                "sandbox_delete",
                "sandbox_exec",
                "exec_poll",
                "exec_write_stdin",
                "exec_signal",
                "file_read",
                "file_write",
                "file_list",
                "file_search",
                "port_url"
            ]
        );
    }

    #[test]
    fn every_tool_is_described_for_strict_clients() {
        for entry in all() {
            let tool = &entry.described;
            let name = tool.name.as_ref();
            assert!(tool.description.as_ref().is_some_and(|text| text.len() > 40), "{name}");
            assert_eq!(tool.input_schema["type"], "object", "{name}");
            assert_eq!(tool.input_schema["additionalProperties"], false, "{name}");
            assert_eq!(tool.output_schema.as_ref().unwrap()["type"], "object", "{name}");
            let hints = tool.annotations.as_ref().unwrap();
            assert!(hints.read_only_hint.is_some() && hints.destructive_hint.is_some(), "{name}");
            assert!(hints.idempotent_hint.is_some(), "{name}");
            // One type for each property: several are not understood everywhere.
            for schema in [&tool.input_schema, tool.output_schema.as_ref().unwrap()] {
                let text = serde_json::to_string(schema).unwrap();
                assert!(!text.contains("\"null\"") && !text.contains("uint"), "{name}: {text}");
            }
        }
    }

    #[test]
    fn tools_can_be_switched_on_and_off() {
        let settings = McpSettings {
            toolsets: [Toolset::Forks].into(),
            disabled: ["run_code".to_owned()].into(),
            ..McpSettings::default()
        };
        let tools = Tools::enabled(&settings);
        assert!(tools.get("run_code").is_none() && tools.get("sandbox_fork").is_some());
        assert!(tools.get("file_delete").is_none() && tools.get("file_read").is_some());
        assert!(Tools::known().contains(&"file_delete".to_owned()));
    }
}
