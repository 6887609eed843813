//! Which crate may depend on which. An arrow that is not in the table is a
//! change of design: it needs a row here and a line in `ARCHITECTURE.md`.

use toml::{Table, Value};

use crate::report::Report;
use crate::tree::Tree;

struct Row {
    /// Folder under `crates/`; the crate is `sandstorm-<folder>`, with `-` for `/`.
    folder: &'static str,
    /// Crates of ours that it may depend on.
    may: &'static [&'static str],
    /// Further ones that its tests alone may use.
    tests_may: &'static [&'static str],
    /// Crates of others that would break what it promises.
    never: &'static [&'static str],
}

/// `types` and `sys` stand at the bottom; `jail` is synchronous and knows no
/// server, no provider and no runtime; `control` knows no concrete backend.
const ROWS: &[Row] = &[
    Row { folder: "types", may: &[], tests_may: &[], never: &["tokio", "rustix", "libc"] },
    Row { folder: "sys", may: &[], tests_may: &[], never: &["tokio"] },
    // What both sides of E2B's API have in common: data only.
    Row { folder: "e2b-wire", may: &[], tests_may: &[], never: &["tokio", "axum", "hyper", "reqwest"] },
    Row { folder: "agent", may: &["sys"], tests_may: &[], never: &[] },
    Row {
        folder: "jail",
        may: &["sys", "agent", "types"],
        tests_may: &[],
        never: &["tokio", "hyper", "reqwest"],
    },
    Row { folder: "pid1", may: &["jail"], tests_may: &[], never: &["tokio"] },
    Row { folder: "egress", may: &["types"], tests_may: &["jail"], never: &[] },
    Row { folder: "language", may: &["types"], tests_may: &[], never: &["tokio"] },
    Row { folder: "provider", may: &["types"], tests_may: &[], never: &[] },
    Row { folder: "agent-client", may: &["agent", "provider", "types"], tests_may: &[], never: &["axum"] },
    Row {
        folder: "kubernetes",
        may: &["agent", "agent-client", "provider", "types"],
        tests_may: &[],
        never: &["axum", "sqlx", "rusqlite"],
    },
    Row { folder: "config", may: &["types"], tests_may: &[], never: &["tokio"] },
    Row { folder: "catalog", may: &["types"], tests_may: &[], never: &["tokio", "reqwest"] },
    // Pure: time and chance are handed to it.
    Row {
        folder: "router",
        may: &["catalog", "types"],
        tests_may: &[],
        never: &["tokio", "reqwest", "rand", "getrandom"],
    },
    Row {
        folder: "fleet",
        may: &["provider", "router", "catalog", "types"],
        tests_may: &[],
        never: &["axum", "hyper", "reqwest"],
    },
    Row {
        folder: "engine",
        may: &["jail", "agent", "agent-client", "egress", "language", "provider", "types"],
        tests_may: &["sys"],
        never: &[],
    },
    Row { folder: "store", may: &["types"], tests_may: &[], never: &[] },
    Row { folder: "telemetry", may: &[], tests_may: &[], never: &[] },
    Row {
        folder: "control",
        may: &["catalog", "fleet", "router", "provider", "language", "store", "types"],
        tests_may: &[],
        never: &["axum", "hyper", "sqlx", "rusqlite"],
    },
    Row {
        folder: "dialect/e2b",
        may: &["control", "e2b-wire", "provider", "types"],
        tests_may: &["language", "store"],
        never: &["sqlx", "rusqlite"],
    },
    Row {
        folder: "dialect/mcp",
        may: &["control", "language", "provider", "types"],
        tests_may: &["store"],
        never: &["sqlx", "rusqlite"],
    },
    Row {
        folder: "dialect/session",
        may: &["control", "provider", "types"],
        tests_may: &["language", "store"],
        never: &["sqlx", "rusqlite"],
    },
    Row {
        folder: "gateway",
        may: &["control", "provider", "telemetry", "types"],
        tests_may: &["catalog", "language", "store"],
        never: &["sqlx", "rusqlite"],
    },
    Row { folder: "client", may: &["types"], tests_may: &[], never: &["axum", "sqlx", "rusqlite"] },
    Row {
        folder: "providers",
        may: &["client", "e2b-wire", "provider", "types"],
        tests_may: &["catalog", "control", "dialect-e2b", "fleet", "gateway", "language", "router", "store"],
        never: &["axum", "sqlx", "rusqlite"],
    },
    Row {
        folder: "cli",
        may: &[
            "agent",
            "catalog",
            "client",
            "config",
            "control",
            "dialect-e2b",
            "dialect-mcp",
            "dialect-session",
            "egress",
            "engine",
            "fleet",
            "gateway",
            "jail",
            "kubernetes",
            "language",
            "provider",
            "providers",
            "router",
            "store",
            "sys",
            "telemetry",
            "types",
        ],
        tests_may: &[],
        never: &[],
    },
    Row { folder: "xtask", may: &[], tests_may: &[], never: &[] },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Product,
    Tests,
}

impl Row {
    fn allows(&self, usage: Use, ours: &str) -> bool {
        self.may.contains(&ours) || (usage == Use::Tests && self.tests_may.contains(&ours))
    }
}

const PREFIX: &str = "sandstorm-";

pub(crate) fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.with_extension("toml") {
        let Some(folder) = path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let manifest: Table = match text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                report.error(format!("{path}: not TOML: {}", error.message()));
                continue;
            }
        };
        let Some(row) = ROWS.iter().find(|row| row.folder == folder) else {
            report.error(format!("{path}: crate without a row in crates/xtask/src/arrows.rs"));
            continue;
        };
        for (usage, name) in dependencies(&manifest) {
            match name.strip_prefix(PREFIX) {
                // A crate may name itself in its dev-dependencies to switch on a feature for its tests.
                Some(ours) if ours != named(folder) && !row.allows(usage, ours) => {
                    report.error(format!("{path}: {folder} may not depend on {ours}"));
                }
                None if row.never.contains(&name.as_str()) => {
                    report.error(format!("{path}: {folder} promises to do without {name}"));
                }
                _ => {}
            }
        }
    }
}

/// The name of the crate in a folder, without the prefix.
fn named(folder: &str) -> String {
    folder.replace('/', "-")
}

/// Names of all packages in every dependency table, those per target included.
fn dependencies(manifest: &Table) -> Vec<(Use, String)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut names = Vec::new();
    for table in std::iter::once(manifest).chain(per_target) {
        for (kind, usage) in [
            ("dependencies", Use::Product),
            ("build-dependencies", Use::Product),
            ("dev-dependencies", Use::Tests),
        ] {
            let listed = table.get(kind).and_then(Value::as_table);
            for (key, value) in listed.into_iter().flatten() {
                let renamed = value.get("package").and_then(Value::as_str);
                names.push((usage, renamed.unwrap_or(key).to_owned()));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check(&Tree::of(&[(path, text)]), &mut report);
        report.errors
    }

    #[test]
    fn arrows_of_the_table_pass() {
        let text = "[dependencies]\nsandstorm-types.workspace = true\nsandstorm-sys.workspace = true\nlibc = \"0.2\"\n";
        assert!(errors("crates/jail/Cargo.toml", text).is_empty());
    }

    #[test]
    fn an_arrow_upwards_is_an_error() {
        let text = "[dependencies]\nsandstorm-provider.workspace = true\n";
        assert_eq!(
            errors("crates/types/Cargo.toml", text),
            ["crates/types/Cargo.toml: types may not depend on provider"]
        );
        let text = "[dependencies]\nsandstorm-engine.workspace = true\n";
        assert_eq!(errors("crates/control/Cargo.toml", text).len(), 1);
    }

    #[test]
    fn every_kind_of_table_counts() {
        for table in ["dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let text = format!("[{table}]\nsandstorm-cli.workspace = true\n");
            assert_eq!(errors("crates/jail/Cargo.toml", &text).len(), 1, "{table}");
        }
    }

    #[test]
    fn a_renamed_package_is_still_that_package() {
        let text = "[dependencies]\nharmless = { package = \"sandstorm-cli\", path = \"../cli\" }\n";
        assert_eq!(errors("crates/jail/Cargo.toml", text).len(), 1);
    }

    #[test]
    fn a_promise_to_do_without_is_kept() {
        let text = "[dependencies]\ntokio.workspace = true\n";
        assert_eq!(
            errors("crates/jail/Cargo.toml", text),
            ["crates/jail/Cargo.toml: jail promises to do without tokio"]
        );
        assert!(errors("crates/engine/Cargo.toml", text).is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_an_error() {
        assert_eq!(errors("crates/novel/Cargo.toml", "[dependencies]\n").len(), 1);
    }

    #[test]
    fn what_tests_may_use_the_product_may_not() {
        let text = "[dev-dependencies]\nsandstorm-jail.workspace = true\n";
        assert!(errors("crates/egress/Cargo.toml", text).is_empty());
        assert_eq!(errors("crates/egress/Cargo.toml", &text.replace("dev-", "")).len(), 1);
        assert_eq!(errors("crates/control/Cargo.toml", text).len(), 1);
    }

    #[test]
    fn a_crate_may_name_itself() {
        let text =
            "[dev-dependencies]\nsandstorm-provider = { path = \".\", features = [\"conformance\"] }\n";
        assert!(errors("crates/provider/Cargo.toml", text).is_empty());
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Rows are in order: each may point only at rows above it.
        for (index, row) in ROWS.iter().enumerate() {
            for name in row.may.iter().chain(row.tests_may) {
                let above = ROWS[..index].iter().any(|other| named(other.folder) == *name);
                assert!(above, "{} points down or nowhere: {name}", row.folder);
            }
        }
    }
}
