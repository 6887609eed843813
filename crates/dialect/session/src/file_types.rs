//! What the name of a file says about its content.

/// Files that are read as text. All others come in base64.
const TEXT: [&str; 32] = [
    "txt", "py", "js", "html", "css", "json", "xml", "csv", "md", "sh", "bash", "zsh", "fish", "c", "cpp",
    "h", "java", "php", "rb", "go", "rs", "swift", "kt", "scala", "sql", "yaml", "yml", "toml", "ini", "cfg",
    "conf", "log",
];

/// Files that can be looked at, with the type that a browser is told.
const PREVIEWS: [(&str, &str); 14] = [
    ("html", "text/html; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("json", "application/json"),
    ("xml", "text/xml; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("bmp", "image/bmp"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("ico", "image/vnd.microsoft.icon"),
];

/// What follows the last point of a name, in lower case; a name that only begins with a point has none.
fn extension(name: &str) -> Option<String> {
    let name = name.rsplit('/').next().unwrap_or(name).trim_start_matches('.');
    name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase())
}

pub(crate) fn is_text(name: &str) -> bool {
    extension(name).is_some_and(|extension| TEXT.contains(&extension.as_str()))
}

/// The type to show a file as; `None` when it cannot be looked at.
pub(crate) fn preview(name: &str) -> Option<&'static str> {
    let extension = extension(name)?;
    PREVIEWS.iter().find(|(known, _)| *known == extension).map(|(_, mime)| *mime)
}

/// The `type` of a file in a list: what follows the last point, as it is written.
pub(crate) fn listed(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or(name);
    name.rsplit_once('.').map_or("unknown", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        assert!(is_text("a/b.PY") && is_text("x.tar.json") && is_text("stdout.log"));
        assert!(!is_text("a.png") && !is_text("json") && !is_text(".txt") && !is_text("a.txt/b"));
        assert_eq!(preview("x/plot.PNG"), Some("image/png"));
        assert_eq!(preview("x.py"), None);
        assert_eq!(preview("html"), None);
        assert_eq!(
            (listed("d.x/a.tar.gz"), listed("Makefile"), listed("d.x/a")),
            ("gz", "unknown", "unknown")
        );
    }
}
