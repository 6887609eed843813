//! Paths as E2B's clients write them: absolute, from home on, or with `~`.

use sandstorm_types::GuestPath;

use crate::refusal::Refusal;

/// Home of the sandbox's user, where programs start and relative paths begin.
pub(crate) const HOME: &str = "/home/user";

/// The place that a client means. `..` is resolved by text, as far as the root.
pub(crate) fn resolve(path: &str) -> Result<GuestPath, Refusal> {
    let rooted = match path {
        "" | "~" => HOME.to_owned(),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{HOME}/{}", path.strip_prefix("~/").unwrap_or(path)),
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

pub(crate) fn home() -> GuestPath {
    HOME.parse().expect("an absolute path")
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
        assert_eq!(home().as_str(), HOME);
    }
}
