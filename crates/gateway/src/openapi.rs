//! The API's description, from the code: what the macros collect, plus what is the same everywhere.
//!
//! Which key a route needs comes from the table that the authentication reads, and which refusals it can answer with
//! from its shape, so neither is written by hand at each handler.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::access::{Access, OPERATOR, PUBLIC, Route};
use crate::problem::{CONTENT_TYPE, FieldError, ProblemBody};
use crate::routes;
use crate::wire::{ServerEvent, StreamEvent, WatchEvent};

const ABOUT: &str = "Runs code in sandboxes. Keys go into `Authorization: Bearer` or `X-API-Key`. Refusals are \
    `application/problem+json` with a stable `code` and a `request_id`. Streams are server-sent events; their `id` \
    resumes them by `Last-Event-ID`.";

/// Groups of operations, in the order in which a reader needs them.
const GROUPS: [(&str, &str); 12] = [
    ("runs", "Code in, result out: a fresh sandbox for each."),
    ("sandboxes", "Sandboxes that stay: made, listed, paused, ended."),
    ("snapshots", "Saved sandboxes, and what new ones start from."),
    ("execs", "Programs in a sandbox."),
    ("contexts", "Living interpreters, whose variables persist."),
    ("files", "Files of a sandbox."),
    ("terminals", "Interactive shells over WebSocket."),
    ("ports", "HTTP and WebSocket to programs inside."),
    ("events", "What happens, as it happens."),
    ("routing", "Where runs and sandboxes go, and why there."),
    ("server", "The server itself."),
    ("admin", "For operators: on the socket in the state directory and on `--admin-listen` only."),
];

/// The description of the native API as pretty JSON, with a line end.
pub fn json() -> String {
    let mut text = serde_json::to_string_pretty(&document()).expect("a document is JSON");
    text.push('\n');
    text
}

/// The description of the native API, OpenAPI 3.1.
pub fn document() -> Value {
    let mut public = described(routes::public().into_openapi());
    let operator = described(routes::operator().into_openapi());
    merge(&mut public, operator);
    complete(&mut public);
    public
}

fn described(document: utoipa::openapi::OpenApi) -> Value {
    serde_json::to_value(document).expect("a document is JSON")
}

/// Adds the paths and schemas of another document that are not there yet.
fn merge(into: &mut Value, from: Value) {
    for part in ["/paths", "/components/schemas"] {
        let (Some(into), Some(from)) = (into.pointer_mut(part), from.pointer(part)) else { continue };
        let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) else { continue };
        for (name, value) in from {
            into.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

fn complete(document: &mut Value) {
    document["info"] = json!({
        "title": "Sandstorm",
        "version": env!("CARGO_PKG_VERSION"),
        "description": ABOUT,
        "license": { "name": "MIT", "identifier": "MIT" },
    });
    let group = |(name, description)| json!({ "name": name, "description": description });
    document["tags"] = GROUPS.into_iter().map(group).collect();
    document["components"]["securitySchemes"] = json!({
        "bearer": { "type": "http", "scheme": "bearer" },
        "api_key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
    });
    let schemas = &mut document["components"]["schemas"];
    for (name, schema) in loose_schemas() {
        schemas[name] = schema;
    }
    // What belongs together is more than fields can say.
    schemas["StartExec"]["oneOf"] = json!([
        { "required": ["command"], "properties": { "command": { "not": { "type": "null" } } } },
        { "required": ["language", "code"], "properties": { "command": { "type": "null" }, "context": { "type": "null" } } },
        { "required": ["context", "code"], "properties": { "command": { "type": "null" }, "language": { "type": "null" } } },
    ]);
    schemas["SignalRequest"]["oneOf"] = json!([{ "required": ["signal"] }, { "required": ["resize"] }]);
    let env = json!({ "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,254}$" });
    for request in ["StartRun", "CreateSandbox", "CreateContext", "StartExec"] {
        schemas[request]["properties"]["env"]["propertyNames"] = env.clone();
    }
    let label = json!({ "pattern": "^[A-Za-z0-9._/-]{1,63}$" });
    schemas["ForkSandbox"]["properties"]["labels"]["propertyNames"] = label.clone();
    schemas["StartRun"]["properties"]["labels"]["propertyNames"] = label.clone();
    schemas["CreateSandbox"]["properties"]["labels"]["propertyNames"] = label;
    let language = json!({ "pattern": "^[A-Za-z0-9+#._-]{1,32}$" });
    schemas["CreateSandbox"]["properties"]["requirements"]["propertyNames"] = language;
    schemas["Extend"]["oneOf"] = json!([{ "required": ["seconds"] }, { "required": ["lifetime"] }]);
    document["components"]["responses"]["Problem"] = json!({
        "description": "A refusal",
        "content": { CONTENT_TYPE: { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    let paths = document["paths"].take();
    let mut finished = Map::new();
    for (path, mut item) in paths.as_object().cloned().unwrap_or_default() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            finish(&path, method, operation);
        }
        finished.insert(path.replace("{*", "{"), item);
    }
    document["paths"] = Value::Object(finished);
}

/// Schemas that no operation names: of refusals, and of what streams carry.
fn loose_schemas() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    add::<ProblemBody>(&mut found);
    add::<FieldError>(&mut found);
    add::<StreamEvent>(&mut found);
    add::<ServerEvent>(&mut found);
    add::<WatchEvent>(&mut found);
    let shown = |(name, schema)| (name, serde_json::to_value(schema).expect("a schema is JSON"));
    found.into_iter().map(shown).collect()
}

fn add<T: ToSchema>(found: &mut Vec<(String, RefOr<Schema>)>) {
    T::schemas(found);
    found.push((T::name().into_owned(), T::schema()));
}

/// Adds to one operation the key that it needs and the refusals that it can answer with.
fn finish(path: &str, method: &str, operation: &mut Value) {
    let access = access_of(path, method);
    let proxied = path.contains("/ports/");
    if proxied {
        // One handler serves all methods, but each operation needs a name of its own.
        let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
        operation["operationId"] = json!(format!("{method}_{name}"));
    }
    match access {
        Some(Access::Open) => operation["security"] = json!([]),
        Some(Access::Metrics) => operation["security"] = json!([{}, { "bearer": [] }, { "api_key": [] }]),
        Some(Access::Key | Access::Scope(_)) | None => {
            operation["security"] = json!([{ "bearer": [] }, { "api_key": [] }]);
        }
    }
    if let Some(Access::Scope(scope)) = access {
        operation["x-scope"] = json!(format!("{scope:?}").to_ascii_lowercase());
    }
    if access == Some(Access::Open) || proxied {
        return;
    }
    // No bytes are bytes too: an empty file, or the end of an input.
    if matches!(operation["operationId"].as_str(), Some("write_file" | "write_stdin")) {
        operation["requestBody"]["required"] = json!(false);
    }
    let mut refusals = vec![400, 401, 403, 408, 421, 429, 431, 500, 503];
    if path.contains('{') {
        refusals.extend([402, 404, 409, 501, 502, 504]);
    }
    if operation.get("requestBody").is_some() {
        refusals.extend([402, 409, 413, 415, 501, 502, 504]);
    }
    if path.contains("/files") {
        refusals.extend([416, 507]);
    }
    // HEAD answers have no bodies, so there is nothing to describe.
    let refusal = if method == "head" {
        json!({ "description": "A refusal" })
    } else {
        json!({ "$ref": "#/components/responses/Problem" })
    };
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for status in refusals {
        responses.entry(status.to_string()).or_insert_with(|| refusal.clone());
    }
    if let Some(upgrade) = responses.get_mut("426") {
        *upgrade = refusal;
    }
}

fn access_of(path: &str, method: &str) -> Option<Access> {
    let fits =
        |row: &&Route| row.path == path && (row.method == "*" || row.method.eq_ignore_ascii_case(method));
    PUBLIC.iter().chain(OPERATOR).find(fits).map(|row| row.access)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn operations() -> Vec<(String, String, Value)> {
        let document = document();
        let paths = document["paths"].as_object().unwrap().clone();
        let each = |(path, item): (String, Value)| {
            let item = item.as_object().unwrap().clone();
            item.into_iter().map(move |(method, operation)| (path.clone(), method, operation))
        };
        paths.into_iter().flat_map(each).collect()
    }

    #[test]
    fn every_route_of_the_tables_is_described_and_no_other() {
        let undocumented = ["/openapi.json", "/docs", "/docs/", "/docs/{*file}"];
        let mut wanted = BTreeSet::new();
        for row in PUBLIC.iter().chain(OPERATOR).filter(|row| !undocumented.contains(&row.path)) {
            let methods: &[&str] = match row.method {
                "*" => &["get", "head", "post", "put", "patch", "delete", "options"],
                one => &[one],
            };
            let path = row.path.replace("{*", "{");
            wanted.extend(methods.iter().map(|method| (path.clone(), method.to_ascii_lowercase())));
        }
        let described: BTreeSet<_> =
            operations().into_iter().map(|(path, method, _)| (path, method)).collect();
        assert_eq!(described, wanted);
    }

    #[test]
    fn it_is_openapi_3_1_with_distinct_names_and_no_loose_end() {
        let document = document();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let names: Vec<_> = operations()
            .into_iter()
            .map(|(_, _, one)| one["operationId"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn every_operation_is_in_a_group_that_is_described() {
        for (path, method, operation) in operations() {
            let tag = operation["tags"][0].as_str().unwrap_or_default();
            assert!(GROUPS.iter().any(|(name, _)| *name == tag), "{method} {path}: {tag}");
        }
    }

    #[test]
    fn every_operation_with_a_key_can_refuse() {
        for (path, method, operation) in operations() {
            let open = operation["security"] == json!([]);
            let refusals = ["400", "401", "403", "429", "500"];
            let described = refusals.iter().all(|status| operation["responses"].get(status).is_some());
            assert!(open || described || path.contains("/ports/"), "{method} {path}");
        }
    }

    #[test]
    fn the_file_in_the_tree_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/openapi.json");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(stored == json(), "run `cargo run -p sandstorm-gateway --example generate`");
    }
}
