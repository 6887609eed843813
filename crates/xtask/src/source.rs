//! Just enough Rust to tell code from comments and strings.

/// The same text with the content of comments, strings and character literals
/// replaced by spaces. Line numbers stay as they are.
pub(crate) fn code_only(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            string(rest)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '\''
            && let Some(length) = character(rest)
        {
            length
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[length..];
    }
    code
}

/// Line numbers, from 1, where `word` stands as a whole name.
pub(crate) fn lines_with_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let numbered = code.lines().enumerate();
    numbered.filter(move |(_, line)| words(line, word).next().is_some()).map(|(index, _)| index + 1)
}

/// Byte offsets in `text` where `word` stands as a whole name.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        !text[..at].ends_with(part_of_name) && !text[at + word.len()..].starts_with(part_of_name)
    })
}

/// Block comments nest in Rust.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// `r"…"`, `r#"…"#`, `br"…"`, `cr"…"`; not the raw name `r#type`.
fn raw_string(text: &str) -> Option<usize> {
    let body =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = text.len() - content.len();
    Some(content.find(&end).map_or(text.len(), |at| opening + at + end.len()))
}

/// A character literal; `None` for a lifetime such as `'static`.
fn character(text: &str) -> Option<usize> {
    let body = &text[1..];
    let first = body.chars().next()?;
    if first == '\\' {
        // Skip the escaped character, so that '\'' ends at its second quote.
        let escaped = body[1..].chars().next()?.len_utf8();
        let tail = 1 + escaped;
        return body[tail..].find('\'').map(|at| 1 + tail + at + 1);
    }
    body[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str) -> bool {
        lines_with_word(&code_only(text), "unsafe").next().is_some()
    }

    #[test]
    fn code_is_kept() {
        assert!(has("fn f() { unsafe { g() } }"));
        assert!(has("let c = '\"'; unsafe { g() }"));
        assert!(has(r"let c = '\''; unsafe { g() }"));
        assert!(has(r"let c = '\u{1F600}'; unsafe { g() }"));
        assert!(has("fn f<'a>(x: &'a str) { unsafe { g() } }"));
        assert!(has("let s = \"a \\\" b\"; unsafe { g() }"));
        assert!(has("let s = r#\"a \" b\"#; unsafe { g() }"));
        assert!(has("let r#type = 1; unsafe { g() }"));
        assert!(has("/* a /* b */ c */ unsafe { g() }"));
        assert!(has("#[unsafe(no_mangle)]"));
    }

    #[test]
    fn comments_and_strings_are_dropped() {
        assert!(!has("// unsafe here\n/// unsafe there"));
        assert!(!has("/* unsafe /* unsafe */ unsafe */"));
        assert!(!has("let s = \"unsafe \\\" unsafe\";"));
        assert!(!has("let s = r##\"unsafe \"# unsafe\"##;"));
        assert!(!has("let s = br\"unsafe\";"));
    }

    #[test]
    fn a_longer_name_is_another_word() {
        assert!(!has("#![forbid(unsafe_code)]"));
        assert!(!has("fn not_unsafe() {}"));
    }

    #[test]
    fn line_numbers_survive() {
        let code = code_only("/* one\n two */\n\"three\nfour\";\nunsafe {}\n");
        assert_eq!(lines_with_word(&code, "unsafe").collect::<Vec<_>>(), [5]);
    }
}
