//! Paths of files, as clients write them.

use sandstorm_types::GuestPath;

use crate::refusal::Refusal;

/// The place in the sandbox that a client means. An absolute path counts from the session; an empty one is the session
/// itself. Links are the agent's matter: there is nothing but the sandbox for them to lead to.
pub(crate) fn place(text: &str) -> Result<GuestPath, Refusal> {
    let bad = |why: &str| Refusal::bad_request(format!("Invalid file path: {why}"));
    let relative = text.trim_start_matches('/');
    if relative.is_empty() {
        return Ok(GuestPath::workspace());
    }
    if relative.split('/').next() == Some(".") {
        return Err(bad("path may not start with `.`"));
    }
    GuestPath::workspace().join(relative).map_err(|error| bad(&error.to_string()))
}

/// The place of a file: the session itself is none.
pub(crate) fn file_place(text: &str) -> Result<GuestPath, Refusal> {
    let place = place(text)?;
    if place == GuestPath::workspace() {
        return Err(Refusal::bad_request("Invalid file path: path is empty"));
    }
    Ok(place)
}

/// The name of a place as clients see it: relative to the session.
pub(crate) fn shown(path: &GuestPath) -> &str {
    path.relative_to(&GuestPath::workspace()).unwrap_or(path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_paths_count_from_the_session() {
        for (text, wanted) in [
            ("a.txt", "/workspace/a.txt"),
            ("/a.txt", "/workspace/a.txt"),
            ("//etc/passwd", "/workspace/etc/passwd"),
            ("a/./b", "/workspace/a/b"),
            ("a//b/", "/workspace/a/b"),
            (".hidden", "/workspace/.hidden"),
            ("...", "/workspace/..."),
        ] {
            let place = file_place(text).unwrap();
            assert_eq!(place.as_str(), wanted, "{text}");
            assert!(!shown(&place).starts_with('/'));
        }
        assert_eq!(place("").unwrap(), GuestPath::workspace());
    }

    #[test]
    fn nothing_goes_up() {
        for text in [
            "..", "../a", "/../a", "a/../b", "a/..", ".", "./a", "/./a", "%2e%2e/a", "a\\..\\b", "a\0b",
            "..%2fa",
        ] {
            assert!(place(text).is_err(), "{text:?}");
        }
        for text in ["", "/", "//"] {
            assert!(file_place(text).is_err(), "{text:?}");
        }
    }
}
