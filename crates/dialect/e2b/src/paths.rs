//! Paths as E2B's clients write them: absolute, from home on, or with `~`.

use sandstorm_types::{GuestPath, User};

use crate::refusal::Refusal;

/// Home of the sandbox's user, where programs start and relative paths begin.
pub(crate) const HOME: &str = "/home/user";

/// The home of a user of the sandbox.
pub(crate) fn home_of(user: User) -> GuestPath {
    let home = match user {
        User::User => HOME,
        User::Root => "/root",
    };
    home.parse().expect("an absolute path")
}

pub(crate) fn home() -> GuestPath {
    home_of(User::User)
}

/// The place that a client of the sandbox's user means.
pub(crate) fn resolve(path: &str) -> Result<GuestPath, Refusal> {
    resolve_as(User::User, path)
}

/// The place that a client means. `..` is resolved by text, as far as the root.
pub(crate) fn resolve_as(user: User, path: &str) -> Result<GuestPath, Refusal> {
    let home = home_of(user);
    let rooted = match path {
        "" | "~" => home.to_string(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{home}/{}", path.strip_prefix("~/").unwrap_or(path)),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in rooted.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let shown: String = path.chars().take(200).collect();
    format!("/{}", parts.join("/"))
        .parse()
        .map_err(|error| Refusal::invalid(format!("path '{shown}' is not a path: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_home_and_end_at_the_root() {
        for (path, wanted) in [
            ("", "/home/user"),
            ("~", "/home/user"),
            ("a.txt", "/home/user/a.txt"),
            ("./a/../b", "/home/user/b"),
            ("~/a", "/home/user/a"),
            ("~a", "/home/user/~a"),
            ("../../../..", "/"),
            ("/", "/"),
            ("/tmp//x/", "/tmp/x"),
            ("/../etc/passwd", "/etc/passwd"),
        ] {
            assert_eq!(resolve(path).unwrap().as_str(), wanted, "{path}");
        }
        for bad in ["a\0b", &"x".repeat(300), &"a/".repeat(5000)] {
            assert!(resolve(bad).is_err());
        }
        for (path, wanted) in [("", "/root"), ("~/a", "/root/a"), ("a", "/root/a"), ("/a", "/a")] {
            assert_eq!(resolve_as(User::Root, path).unwrap().as_str(), wanted, "{path}");
        }
    }
}
