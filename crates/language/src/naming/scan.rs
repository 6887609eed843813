//! Words and marks of a program in a language with C's braces, without its comments and literals.

/// One identifier, number or punctuation mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) first_on_line: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Java,
    JavaScript,
}

/// A literal, as it appears among the tokens.
pub(super) const LITERAL: &str = "\"\"";

pub(super) fn tokens(code: &str, dialect: Dialect) -> Vec<Token<'_>> {
    let mut scanner = Scanner { code, at: 0, dialect, first_on_line: true, tokens: Vec::new() };
    while scanner.at < code.len() {
        scanner.step();
    }
    scanner.tokens
}

struct Scanner<'a> {
    code: &'a str,
    at: usize,
    dialect: Dialect,
    first_on_line: bool,
    tokens: Vec<Token<'a>>,
}

impl<'a> Scanner<'a> {
    fn step(&mut self) {
        let rest = &self.code[self.at..];
        let Some(first) = rest.chars().next() else { return };
        let script = self.dialect == Dialect::JavaScript;
        if first.is_whitespace() {
            self.first_on_line |= first == '\n';
            self.at += first.len_utf8();
        } else if rest.starts_with("//") || (self.at == 0 && rest.starts_with("#!")) {
            self.at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if !script && rest.starts_with("\"\"\"") {
            let length = rest[3..].find("\"\"\"").map_or(rest.len(), |end| end + 6);
            self.literal(length);
        } else if first == '"' || first == '\'' {
            self.literal(quoted(rest, first, '\n'));
        } else if script && first == '`' {
            self.literal(template(rest));
        } else if script && first == '/' && self.regex_may_start() {
            self.literal(regex(rest));
        } else if is_word(first) {
            self.push(rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()));
        } else if rest.starts_with("=>") {
            self.push(2);
        } else {
            self.push(first.len_utf8());
        }
    }

    fn push(&mut self, length: usize) {
        let text = &self.code[self.at..self.at + length];
        self.tokens.push(Token { text, first_on_line: std::mem::take(&mut self.first_on_line) });
        self.at += length;
    }

    fn literal(&mut self, length: usize) {
        self.tokens.push(Token { text: LITERAL, first_on_line: std::mem::take(&mut self.first_on_line) });
        self.at += length;
    }

    /// A slash after a value divides; anywhere else it opens a regular expression.
    fn regex_may_start(&self) -> bool {
        let Some(last) = self.tokens.last() else { return true };
        match last.text {
            "return" | "typeof" | "case" | "in" | "of" | "await" | "void" | "delete" => true,
            ")" | "]" | "}" | LITERAL => false,
            text => !text.chars().next().is_some_and(is_word),
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Length of a quoted literal. One that never closes ends at `stop`, so that a stray quote spoils one line at most.
fn quoted(text: &str, quote: char, stop: char) -> usize {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        if c == stop {
            return index;
        }
        if !escaped && c == quote {
            return index + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn regex(text: &str) -> usize {
    let (mut escaped, mut in_class) = (false, false);
    for (index, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return index,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a template literal with whatever its `${}` hold, templates included.
fn template(text: &str) -> usize {
    // One entry per open template: how many braces are open in its current `${}`.
    let mut open = vec![0_usize];
    let mut escaped = false;
    let mut previous = '`';
    for (index, c) in text.char_indices().skip(1) {
        let Some(&braces) = open.last() else { return index };
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '`' if braces == 0 => drop(open.pop()),
            '`' => open.push(0),
            '{' if braces > 0 || previous == '$' => open.iter_mut().last().into_iter().for_each(|n| *n += 1),
            '}' if braces > 0 => open.iter_mut().last().into_iter().for_each(|n| *n -= 1),
            _ => {}
        }
        previous = c;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &str, dialect: Dialect) -> Vec<&str> {
        tokens(code, dialect).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_left_out() {
        assert_eq!(
            texts("a // b\n/* c\n*/ d 'e' \"f\\\"g\" h", Dialect::Java),
            ["a", "d", LITERAL, LITERAL, "h"]
        );
        assert_eq!(
            texts("x = \"\"\"\n class Y { \" \n\"\"\"; z", Dialect::Java),
            ["x", "=", LITERAL, ";", "z"]
        );
        assert_eq!(texts("#!/usr/bin/env node\nx", Dialect::JavaScript), ["x"]);
    }

    #[test]
    fn templates_nest() {
        let code = "`a ${ f({b: `c ${d}`}) } await` e";
        assert_eq!(texts(code, Dialect::JavaScript), [LITERAL, "e"]);
        assert_eq!(texts("`\\`` x", Dialect::JavaScript), [LITERAL, "x"]);
    }

    #[test]
    fn division_is_no_regex() {
        assert_eq!(texts("a / b / c", Dialect::JavaScript), ["a", "/", "b", "/", "c"]);
        assert_eq!(
            texts("x = /['\"/]/.test(y)", Dialect::JavaScript),
            ["x", "=", LITERAL, ".", "test", "(", "y", ")"]
        );
    }

    #[test]
    fn unfinished_literals_end() {
        assert_eq!(texts("'a\nb", Dialect::JavaScript), [LITERAL, "b"]);
        assert_eq!(texts("`a\nb", Dialect::JavaScript), [LITERAL]);
        assert_eq!(texts("/* a", Dialect::Java), [] as [&str; 0]);
        assert_eq!(texts("é = 'ü", Dialect::JavaScript), ["é", "=", LITERAL]);
    }
}
