//! Code that is indented as a whole, because it was written inside the text of another program.

use std::borrow::Cow;

use crate::Language;

impl Language {
    /// The code without the indentation that all of its lines share, where the language would refuse it.
    ///
    /// Blank lines do not count. Code in which one line is not indented stays as it is, and so does code in a language that
    /// ignores indentation.
    pub fn unindented<'a>(&self, code: &'a str) -> Cow<'a, str> {
        match self.source.indented {
            true => without(common_indentation(code), code),
            false => Cow::Borrowed(code),
        }
    }
}

fn without<'a>(common: &str, code: &'a str) -> Cow<'a, str> {
    if common.is_empty() {
        return Cow::Borrowed(code);
    }
    let mut text = String::with_capacity(code.len());
    for line in code.split_inclusive('\n') {
        // Only a blank line can have less than what is common.
        text.push_str(line.strip_prefix(common).unwrap_or_else(|| after_indentation(line)));
    }
    Cow::Owned(text)
}

/// What the lines with something in them all begin with.
fn common_indentation(code: &str) -> &str {
    let mut lines = code.lines().filter(|line| !line.trim().is_empty());
    let indentation = |line: &str| line.len() - after_indentation(line).len();
    let Some(first) = lines.next() else { return "" };
    let mut common = &first[..indentation(first)];
    for line in lines {
        if common.is_empty() {
            break;
        }
        let same = common.bytes().zip(line.bytes()).take_while(|(one, other)| one == other).count();
        common = &common[..same];
    }
    common
}

fn after_indentation(line: &str) -> &str {
    line.trim_start_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalogue;

    fn python(code: &str) -> Cow<'_, str> {
        Catalogue::embedded().get("python").unwrap().unindented(code)
    }

    #[test]
    fn what_all_lines_share_is_removed() {
        for (code, wanted) in [
            ("\n    import os\n    print(1)\n  ", "\nimport os\nprint(1)\n"),
            ("  if x:\n    y()\n\n  z()", "if x:\n  y()\n\nz()"),
            ("\tif x:\r\n\t\ty()\r\n", "if x:\r\n\ty()\r\n"),
            ("  a = 1\n   \n  b = 2", "a = 1\n \nb = 2"),
            ("  é = 1", "é = 1"),
            ("\ta = 1\n\t  \n\tb = 2", "a = 1\n  \nb = 2"),
        ] {
            assert_eq!(python(code), wanted, "{code:?}");
            assert_eq!(python(wanted), wanted, "once is enough");
        }
    }

    #[test]
    fn what_is_not_common_stays() {
        for code in
            ["", "   ", "\n", "print(1)", "if x:\n    y()", "    a\nb", "  a\n\tb", "  a = '''\nb\n  '''"]
        {
            assert!(matches!(python(code), Cow::Borrowed(same) if same == code), "{code:?}");
        }
    }

    #[test]
    fn languages_that_ignore_it_keep_it() {
        for language in ["javascript", "bash", "go"] {
            let language = Catalogue::embedded().get(language).unwrap();
            assert_eq!(language.unindented("  a\n  b"), "  a\n  b");
        }
    }
}
