//! A command line without a shell: words between blanks, with quotes and backslashes, and nothing else that has a meaning.

/// The words of a line. In single quotes everything is itself; in double quotes a backslash takes the meaning of a quote or
/// of another backslash; outside of both, of any character.
pub(super) fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is not closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('"') => break,
                        Some('\\') => match characters.next() {
                            Some(c @ ('"' | '\\')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => return Err("a double quote is not closed"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a double quote is not closed"),
                    }
                }
            }
            '\\' => match characters.next() {
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("a backslash at the end stands for nothing"),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_by_blanks_and_kept_together_by_quotes() {
        for (line, expected) in [
            ("ls -la /tmp", vec!["ls", "-la", "/tmp"]),
            ("  a \t b\n", vec!["a", "b"]),
            ("python3 -c 'print(\"a b\")'", vec!["python3", "-c", "print(\"a b\")"]),
            (r#"echo "a \"b\" \\ \n" c\ d"#, vec!["echo", r#"a "b" \ \n"#, "c d"]),
            ("a'b'\"c\"d", vec!["abcd"]),
            ("'' \"\"", vec!["", ""]),
            ("'\\'", vec!["\\"]),
            ("ünïcode 'größe \u{1f600}'", vec!["ünïcode", "größe \u{1f600}"]),
            ("", vec![]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn nothing_means_what_it_means_to_a_shell() {
        assert_eq!(
            words("echo $HOME | wc > x && y; `z` *").unwrap(),
            ["echo", "$HOME", "|", "wc", ">", "x", "&&", "y;", "`z`", "*"]
        );
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for line in ["echo 'a", "echo \"a", "echo \"a\\", "echo a\\"] {
            assert!(words(line).is_err(), "{line}");
        }
    }
}
