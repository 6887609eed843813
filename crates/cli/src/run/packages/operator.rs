//! The indexes that an operator configured for the package managers themselves.
//!
//! Only files and variables are read, in the order in which the package managers do; nothing is started. What is built
//! into a package manager is asked elsewhere, in a sandbox.

use std::path::PathBuf;

use sandstorm_config::{Environment, Manager};
use sandstorm_control::IndexSource;

/// The address that the operator chose, credentials included, or nothing.
pub(super) fn index(manager: Manager, environment: &Environment) -> Option<String> {
    let files = Files(environment);
    let address = match manager {
        Manager::Pip => {
            let named = files.variable(&["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"]);
            named.or_else(|| files.first(&PIP, |text| ini(text, "index-url")))
        }
        Manager::Npm => {
            let named = files.variable(&["npm_config_registry", "NPM_CONFIG_REGISTRY"]);
            named.or_else(|| files.first(&NPM, |text| ini(text, "registry")))
        }
        Manager::Go => {
            let named = files.variable(&["GOPROXY"]);
            named
                .or_else(|| files.first(&GO, |text| ini(text, "GOPROXY")))
                .and_then(|list| first_proxy(&list))
        }
        Manager::Cargo => files.first(&CARGO, cargo_source),
        Manager::Maven => files.first(&MAVEN, maven_mirror),
        Manager::Gem => files.first(&GEM, gem_source),
    };
    address.filter(|address| {
        let address = address.strip_prefix("sparse+").unwrap_or(address);
        address.starts_with("https://") || address.starts_with("http://")
    })
}

/// Takes credentials out of an address.
pub(super) fn split(address: String) -> IndexSource {
    let parts = address.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (credentials, host) = rest[..end].rsplit_once('@')?;
        Some((format!("{scheme}://{host}{}", &rest[end..]), unescaped(credentials)))
    });
    match parts {
        Some((address, credentials)) => {
            IndexSource { address: Some(address), credentials: Some(credentials), ..IndexSource::default() }
        }
        None => IndexSource { address: Some(address), ..IndexSource::default() },
    }
}

/// Candidates, the strongest first. `~` is the home directory, `$NAME` a variable that names the file or its folder.
const PIP: [&str; 5] = [
    "$PIP_CONFIG_FILE",
    "$XDG_CONFIG_HOME/pip/pip.conf",
    "~/.config/pip/pip.conf",
    "~/.pip/pip.conf",
    "/etc/pip.conf",
];
const NPM: [&str; 3] = ["$NPM_CONFIG_USERCONFIG", "~/.npmrc", "/etc/npmrc"];
const GO: [&str; 3] = ["$GOENV", "$XDG_CONFIG_HOME/go/env", "~/.config/go/env"];
const CARGO: [&str; 3] = ["$CARGO_HOME/config.toml", "~/.cargo/config.toml", "~/.cargo/config"];
const MAVEN: [&str; 2] = ["~/.m2/settings.xml", "/etc/maven/settings.xml"];
const GEM: [&str; 3] = ["$GEMRC", "~/.gemrc", "/etc/gemrc"];

struct Files<'a>(&'a Environment);

impl Files<'_> {
    fn variable(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.0.get(name)?.to_str().map(str::to_owned))
    }

    /// What the first file that says anything says.
    fn first(&self, candidates: &[&str], find: impl Fn(&str) -> Option<String>) -> Option<String> {
        let texts =
            candidates.iter().filter_map(|candidate| std::fs::read_to_string(self.path(candidate)?).ok());
        texts.filter_map(|text| find(&text)).next()
    }

    fn path(&self, candidate: &str) -> Option<PathBuf> {
        if let Some(rest) = candidate.strip_prefix("~/") {
            return Some(PathBuf::from(self.0.get("HOME")?).join(rest));
        }
        let Some(named) = candidate.strip_prefix('$') else { return Some(PathBuf::from(candidate)) };
        match named.split_once('/') {
            Some((name, rest)) => Some(PathBuf::from(self.0.get(name)?).join(rest)),
            None => Some(PathBuf::from(self.0.get(named)?)),
        }
    }
}

/// `key = value` on a line of its own, whatever the section.
fn ini(text: &str, key: &str) -> Option<String> {
    let mut values = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    });
    values.next_back().filter(|value| !value.is_empty())
}

/// A list of proxies ends in words such as `direct`, which are no addresses.
fn first_proxy(list: &str) -> Option<String> {
    list.split([',', '|']).map(str::trim).find(|item| item.contains("://")).map(str::to_owned)
}

/// The registry that replaces the usual one.
fn cargo_source(text: &str) -> Option<String> {
    let config: toml::Table = text.parse().ok()?;
    let sources = config.get("source")?.as_table()?;
    let mut name = "crates-io";
    // A replacement may be replaced in turn; a circle is cargo's to complain about.
    for _ in 0..8 {
        let source = sources.get(name)?.as_table()?;
        match source.get("replace-with").and_then(toml::Value::as_str) {
            Some(other) => name = other,
            None => return source.get("registry")?.as_str().map(str::to_owned),
        }
    }
    None
}

/// The mirror of everything, or of the usual repository.
fn maven_mirror(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        plain.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let element = |text: &str, name: &str| {
        let (_, after) = text.split_once(&format!("<{name}>"))?;
        Some(after.split_once(&format!("</{name}>"))?.0.trim().to_owned())
    };
    let mirrors = plain.split("<mirror>").skip(1);
    let mut wanted = mirrors.filter(|mirror| {
        let of = element(mirror, "mirrorOf").unwrap_or_default();
        of.split(',').any(|of| matches!(of.trim(), "*" | "central" | "external:*"))
    });
    element(wanted.next()?, "url")
}

/// The first of the listed sources.
fn gem_source(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| !matches!(line.trim(), ":sources:" | "sources:"));
    lines.next()?;
    let item = lines.next()?.trim().strip_prefix("- ")?;
    Some(item.trim().trim_matches(['"', '\'']).to_owned())
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = std::str::from_utf8(tail.get(..2).unwrap_or_default()).ok();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
