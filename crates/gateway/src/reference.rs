//! The reference page of the HTTP API, from its description.

use std::fmt::Write as _;

use sandstorm_types::ErrorKind;
use serde_json::Value;

use crate::openapi::document;
use crate::problem::status_of;

const HEAD: &str = "# HTTP API

<!-- Made from the code: `cargo run -p sandstorm-gateway --example generate`. -->

Every route with what it needs. Bodies, parameters and answers are in `api/openapi.json`, which a server also gives at
`/openapi.json` and shows at `/docs/`. A key goes into `Authorization: Bearer` or `X-API-Key`, once, never into the
address. Routes under `/v1/admin` are on the admin listener alone.
";

const TAIL: &str = "
Two families depend on the case. `file_system` follows what the kernel said: 404 absent, 403 not permitted or read-only,
409 in the way or of another kind, 507 no room, 400 an impossible name. `invalid_request` is 413 for a body that is too
large, 415 for one of another kind, 405 for a method that a path does not have, 416 for a range that a file does not
have, 421 for a `Host` that is not the server's, 426 for a terminal or tunnel without an upgrade, 431 for a head that is too
large. A body that comes too slowly is `timeout` with 408. `isolation` is 501 because this host cannot build the walls that were
asked for, however often it is tried. 429 and 503 carry `Retry-After` in seconds.

## Streams

With `Accept: text/event-stream` runs and execs answer with server-sent events. `id` is the event's number, `event` its
type, `data` its JSON. Reconnect to `…/execs/{exec}/events` with `Last-Event-ID`. A comment every 15 s keeps the
connection alive. Closing the connection ends a foreground exec, unless it was started with `on_disconnect: keep`. A
stream ends within about a second of its key's end.

## Repeating a request

What creates takes an `Idempotency-Key` of 1 to 255 visible characters. Within a day the same key, route and body give
the first answer again, with `Idempotency-Replayed: true`; another body is a conflict. Streams take no key. This holds
after a timeout and after the server was killed: what began is not begun again. A request that is sent again waits for
what is under way, and hears a problem where it was lost with the server. A run, or a program in the foreground, still
ends with its client, and the answer is then that of the killed program; what is made to stay is made to its end. Where
nothing began, as when a quota is used up, the key is free. An answer of more than 2 MiB is not kept: a repeated request
gets what is on record, which is the first 256 KiB of each stream and 1 MiB of results.

## Ports

`…/ports/{port}/…` forwards to a program in the sandbox. It does not see the key, other cookies of this host or the
client's address. Its cookies are renamed and bound to its own path, headers that act on a whole host are dropped, and
its pages run in an origin of their own (`Content-Security-Policy: sandbox` without `allow-same-origin`), so that they
cannot act on other pages of this server.
";

/// The page.
pub fn page() -> String {
    let document = document();
    let mut page = HEAD.to_owned();
    let mut tags: Vec<&str> = Vec::new();
    let rows: Vec<_> = operations(&document).collect();
    for (_, _, operation) in &rows {
        let tag = operation["tags"][0].as_str().unwrap_or("other");
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    for tag in tags {
        let _ = write!(
            page,
            "\n## {}{}\n\n| route | scope | what |\n|---|---|---|\n",
            tag[..1].to_uppercase(),
            &tag[1..]
        );
        for (method, path, operation) in rows.iter().filter(|(_, _, one)| one["tags"][0] == tag) {
            let scope = operation["x-scope"].as_str().unwrap_or(match operation["security"].as_array() {
                Some(list) if list.is_empty() => "no key",
                Some(list) if list.len() == 3 => "no key, or any",
                _ => "any key",
            });
            let what = operation["summary"].as_str().unwrap_or_default();
            let _ = writeln!(page, "| `{} {path}` | {scope} | {what} |", method.to_uppercase());
        }
    }
    page.push_str("\n## Refusals\n\nAll are `application/problem+json` with `type`, `title`, `status`, `detail`, `code`, ");
    page.push_str("`request_id` and, where fields are wrong, `errors`.\n\n| code | status |\n|---|---|\n");
    for kind in ErrorKind::ALL {
        let _ = writeln!(page, "| [`{kind}`](errors/{kind}.md) | {} |", status_of(kind).as_u16());
    }
    page.push_str(TAIL);
    page
}

/// Operations in the order of the document; one line stands for all methods of a port.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths
        .flat_map(|(path, item)| {
            let methods = item.as_object().into_iter().flatten();
            methods.map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
        })
        .filter(|(method, path, _)| {
            !path.contains("/ports/") || (*method == "get" && path.ends_with("{path}"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_tree_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/http-api.md");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(stored == page(), "run `cargo run -p sandstorm-gateway --example generate`");
    }

    #[test]
    fn every_route_has_a_line() {
        let page = page();
        for row in crate::access::PUBLIC.iter().filter(|row| row.path.starts_with("/v1") && row.method != "*")
        {
            assert!(page.contains(&format!("`{} {}`", row.method, row.path)), "{row:?}");
        }
    }
}
