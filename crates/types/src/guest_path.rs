//! Paths inside a sandbox.
//!
//! A path is normalised once, at the edge: absolute, without `.`, `..`, doubled or trailing slashes. It
//! names a place as the sandbox sees it; only the agent inside opens it, so links are the kernel's matter.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::text_form::serde_as_text;

const MAX_LEN: usize = 4096;
const MAX_COMPONENT: usize = 255;

/// An absolute, normalised path inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestPath(String);

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuestPathError {
    #[error("path is empty")]
    Empty,
    #[error("path holds a NUL character")]
    Nul,
    #[error("path is longer than 4096 bytes")]
    TooLong,
    #[error("path has a part longer than 255 bytes")]
    Component,
    #[error("path may not go up with `..`, however it is written")]
    Parent,
}

impl GuestPath {
    /// Where relative paths start and programs run.
    pub const WORKSPACE: &'static str = "/workspace";

    pub fn workspace() -> Self {
        Self(Self::WORKSPACE.to_owned())
    }

    pub fn root() -> Self {
        Self("/".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Last part of the path; `None` for `/`.
    pub fn file_name(&self) -> Option<&str> {
        self.0.rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Path of the directory that holds this one; `None` for `/`.
    pub fn parent(&self) -> Option<Self> {
        let at = self.0.rfind('/').filter(|_| self.0.len() > 1)?;
        Some(if at == 0 { Self::root() } else { Self(self.0[..at].to_owned()) })
    }

    /// The path of `relative` below this one; a leading slash is refused as going up is.
    pub fn join(&self, relative: &str) -> Result<Self, GuestPathError> {
        if relative.starts_with('/') {
            return Err(GuestPathError::Parent);
        }
        resolve(self.as_str(), relative)
    }

    /// Whether this is `base` or lies below it.
    pub fn is_within(&self, base: &Self) -> bool {
        match self.0.strip_prefix(base.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/') || base.0 == "/",
            None => false,
        }
    }

    /// The path relative to `base`, without a leading slash; `None` when it lies elsewhere.
    pub fn relative_to(&self, base: &Self) -> Option<&str> {
        self.is_within(base).then(|| self.0[base.0.len()..].trim_start_matches('/'))
    }
}

impl FromStr for GuestPath {
    type Err = GuestPathError;

    fn from_str(text: &str) -> Result<Self, GuestPathError> {
        match text.strip_prefix('/') {
            Some(rest) => resolve("/", rest),
            None => resolve(Self::WORKSPACE, text),
        }
    }
}

fn resolve(base: &str, relative: &str) -> Result<GuestPath, GuestPathError> {
    if relative.is_empty() && base != "/" {
        return Err(GuestPathError::Empty);
    }
    if relative.contains('\0') || relative.contains("%00") {
        return Err(GuestPathError::Nul);
    }
    if relative.len() > MAX_LEN {
        return Err(GuestPathError::TooLong);
    }
    let mut path = base.trim_end_matches('/').to_owned();
    for part in relative.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part.len() > MAX_COMPONENT {
            return Err(GuestPathError::Component);
        }
        if goes_up(part) {
            return Err(GuestPathError::Parent);
        }
        path.push('/');
        path.push_str(part);
    }
    match path.len() {
        0 => Ok(GuestPath::root()),
        1..=MAX_LEN => Ok(GuestPath(path)),
        _ => Err(GuestPathError::TooLong),
    }
}

/// Whether a part means `..` here or to someone who decodes it once more or knows other separators.
fn goes_up(part: &str) -> bool {
    let decoded = part.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    decoded.split(['/', '\\']).any(|piece| piece == "..")
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(GuestPath);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> GuestPath {
        text.parse().unwrap()
    }

    #[test]
    fn normalises() {
        for (text, wanted) in [
            ("a.txt", "/workspace/a.txt"),
            ("./a//b/./c/", "/workspace/a/b/c"),
            (".", "/workspace"),
            ("/", "/"),
            ("//", "/"),
            ("/tmp/x/", "/tmp/x"),
            ("/etc/passwd", "/etc/passwd"),
            ("a\\b", "/workspace/a\\b"),
            ("...", "/workspace/..."),
            ("a..b", "/workspace/a..b"),
            ("ü/日本", "/workspace/ü/日本"),
        ] {
            assert_eq!(path(text).as_str(), wanted, "{text}");
        }
    }

    #[test]
    fn refuses() {
        let long = "a".repeat(256);
        let deep = "a/".repeat(2100);
        for (text, wanted) in [
            ("", GuestPathError::Empty),
            ("a\0b", GuestPathError::Nul),
            ("a%00", GuestPathError::Nul),
            ("..", GuestPathError::Parent),
            ("a/../b", GuestPathError::Parent),
            ("/..", GuestPathError::Parent),
            ("%2e%2e/x", GuestPathError::Parent),
            (".%2E", GuestPathError::Parent),
            ("..\\x", GuestPathError::Parent),
            ("x\\..", GuestPathError::Parent),
            ("..%2fetc", GuestPathError::Parent),
            ("a%5c..", GuestPathError::Parent),
            (&long, GuestPathError::Component),
            (&deep, GuestPathError::TooLong),
        ] {
            assert_eq!(text.parse::<GuestPath>(), Err(wanted), "{text:?}");
        }
    }

    #[test]
    fn family() {
        let file = path("/a/b");
        assert_eq!((file.file_name(), file.parent()), (Some("b"), Some(path("/a"))));
        assert_eq!(path("/a").parent(), Some(GuestPath::root()));
        assert_eq!((GuestPath::root().parent(), GuestPath::root().file_name()), (None, None));
        assert!(file.is_within(&path("/a")) && file.is_within(&GuestPath::root()) && file.is_within(&file));
        assert!(!path("/ab").is_within(&path("/a")));
        assert_eq!(file.relative_to(&GuestPath::root()), Some("a/b"));
        assert_eq!(file.relative_to(&path("/a")), Some("b"));
        assert_eq!(path("/a").join("b/./c").unwrap(), path("/a/b/c"));
        assert!(path("/a").join("/b").is_err());
    }

    proptest! {
        #[test]
        fn accepted_paths_stay_put(text in "[a./%2eE\\\\\\x00-]{0,30}|\\PC{0,30}") {
            if let Ok(parsed) = text.parse::<GuestPath>() {
                prop_assert_eq!(parsed.as_str().parse::<GuestPath>(), Ok(parsed.clone()));
                prop_assert!(parsed.as_str().starts_with('/'));
                prop_assert!(!parsed.as_str().split('/').any(|part| part == ".." || part == "."));
                prop_assert!(!parsed.as_str().contains('\0') && !parsed.as_str().contains("//"));
                if !text.starts_with('/') {
                    prop_assert!(parsed.is_within(&GuestPath::workspace()));
                }
            }
        }
    }
}
