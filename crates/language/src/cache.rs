//! The name under which a compile's result is kept.

use std::fmt;

use crate::detect::Toolchain;
use crate::language::Language;
use crate::plan::Plan;

/// 64 hexadecimal digits; equal only for compiles with the same outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey(String);

impl CacheKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of a compile: whose it is, with what, by which command, of which files.
///
/// `scope` is the tenant: a compiler that runs one tenant's code must not fill the cache of another. `files` are all
/// of the user's files, since a compiler may read any of them.
pub fn cache_key<'a>(
    scope: &str,
    language: &Language,
    toolchain: &Toolchain,
    plan: &Plan,
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> CacheKey {
    let mut hash = Hash(blake3::Hasher::new_derive_key("sandstorm compile cache v1"));
    hash.field(scope.as_bytes());
    hash.field(language.name.as_bytes());
    hash.field(toolchain.version.as_deref().unwrap_or_default().as_bytes());
    hash.list(plan.argv.iter().map(|arg| [arg.as_bytes(), b""]));
    hash.list(plan.env.iter().map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
    hash.list(plan.files.iter().map(|file| [file.path.as_bytes(), file.text.as_bytes()]));
    let mut files: Vec<_> = files.into_iter().map(|(path, bytes)| [path.as_bytes(), bytes]).collect();
    files.sort_unstable();
    hash.list(files.into_iter());
    CacheKey(hash.0.finalize().to_hex().to_string())
}

/// Lengths go in front of contents, so that nothing moves from one field to its neighbour.
struct Hash(blake3::Hasher);

impl Hash {
    fn field(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    fn list<'a>(&mut self, pairs: impl ExactSizeIterator<Item = [&'a [u8]; 2]>) {
        self.number(pairs.len());
        for [name, value] in pairs {
            self.field(name);
            self.field(value);
        }
    }

    fn number(&mut self, number: usize) {
        self.0.update(&(number as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Catalogue;

    fn toolchain(version: &str) -> Toolchain {
        Toolchain { programs: BTreeMap::new(), mounts: Vec::new(), version: Some(version.to_owned()) }
    }

    fn plan(argv: &[&str]) -> Plan {
        let argv = argv.iter().map(|&arg| arg.to_owned()).collect();
        Plan { argv, env: BTreeMap::new(), cwd: "/workspace", files: Vec::new() }
    }

    #[test]
    fn anything_that_matters_changes_the_key() {
        let [c, cpp] = ["c", "cpp"].map(|name| Catalogue::embedded().get(name).unwrap());
        let (old, new) = (toolchain("12.2.0"), toolchain("12.3.0"));
        let mut with_env = plan(&["cc", "a"]);
        with_env.env.insert("A".to_owned(), "B".to_owned());
        let one: &[(&str, &[u8])] = &[("main.c", b"x")];
        let keys = [
            cache_key("t", c, &old, &plan(&["cc", "a"]), one.iter().copied()),
            cache_key("u", c, &old, &plan(&["cc", "a"]), one.iter().copied()),
            cache_key("t", cpp, &old, &plan(&["cc", "a"]), one.iter().copied()),
            cache_key("t", c, &new, &plan(&["cc", "a"]), one.iter().copied()),
            cache_key("t", c, &old, &plan(&["cca"]), one.iter().copied()),
            cache_key("t", c, &old, &with_env, one.iter().copied()),
            cache_key("t", c, &old, &plan(&["cc", "a"]), [("main.c", &b"y"[..])]),
            cache_key("t", c, &old, &plan(&["cc", "a"]), [("main.cx", &b""[..])]),
            cache_key("t", c, &old, &plan(&["cc", "a"]), [("main.c", &b"x"[..]), ("a.h", b"")]),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys[0].as_str().len() == 64 && keys[0].as_str().bytes().all(|b| b.is_ascii_hexdigit()));
    }

    #[test]
    fn the_order_of_files_does_not() {
        let c = Catalogue::embedded().get("c").unwrap();
        let key = |names: [&str; 2]| {
            cache_key("t", c, &toolchain("1.0"), &plan(&["cc"]), names.map(|name| (name, name.as_bytes())))
        };
        assert_eq!(key(["a.c", "b.c"]), key(["b.c", "a.c"]));
    }
}
