//! Whether JavaScript or TypeScript is written as an ES module.

use super::scan::{Dialect, LITERAL, Token, tokens};

/// The code imports or exports, or awaits outside any function.
///
/// Code that awaits and also calls `require` can be neither; it is taken for the CommonJS that it mostly is.
pub(super) fn is_module(code: &str) -> bool {
    let tokens = tokens(code, Dialect::JavaScript);
    let mut walk = Walk::default();
    let (mut awaits, mut requires) = (false, false);
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1).map(|token| token.text);
        walk.step(&tokens, index);
        match token.text {
            "import" if walk.starts_statement && !matches!(next, Some("(" | ".")) => return true,
            "export" if walk.starts_statement => return true,
            "await" if walk.at_top() => awaits = true,
            "require" if next == Some("(") => requires = true,
            _ => {}
        }
    }
    awaits && !requires
}

/// The code awaits outside any function.
pub(super) fn awaits_at_top(code: &str) -> bool {
    let tokens = tokens(code, Dialect::JavaScript);
    let mut walk = Walk::default();
    (0..tokens.len()).any(|index| {
        walk.step(&tokens, index);
        tokens[index].text == "await" && walk.at_top()
    })
}

/// What is open around the current token.
#[derive(Default)]
struct Walk<'a> {
    open: Vec<Frame<'a>>,
    /// An arrow without braces is open at the top: what follows belongs to its function.
    arrow: bool,
    starts_statement: bool,
    /// The word before the parenthesis that closed last.
    called: Option<&'a str>,
}

struct Frame<'a> {
    is_function: bool,
    arrow: bool,
    before: Option<&'a str>,
}

impl<'a> Walk<'a> {
    fn step(&mut self, tokens: &[Token<'a>], index: usize) {
        let text = tokens[index].text;
        let previous = index.checked_sub(1).map(|index| tokens[index].text);
        let next = tokens.get(index + 1).map(|token| token.text);
        let ends_value = |text: &str| {
            text == LITERAL || matches!(text, ")" | "]" | "}") || text.chars().all(char::is_alphanumeric)
        };
        let new_line = tokens[index].first_on_line && previous.is_none_or(ends_value);
        self.starts_statement =
            self.open.is_empty() && (new_line || matches!(previous, None | Some(";" | "}")));
        if new_line && text.chars().next().is_some_and(char::is_alphabetic) || matches!(text, ";" | ",") {
            self.set_arrow(false);
        }
        match text {
            "=>" if next != Some("{") => self.set_arrow(true),
            "(" | "[" => self.open.push(Frame { is_function: false, arrow: false, before: previous }),
            "{" => {
                let is_function = match previous {
                    Some("=>") => true,
                    Some(")") => {
                        !matches!(self.called, Some("if" | "for" | "while" | "switch" | "catch" | "await"))
                    }
                    _ => is_declaration(&tokens[..index]),
                };
                self.open.push(Frame { is_function, arrow: false, before: previous });
            }
            ")" | "]" | "}" => {
                let closed = self.open.pop();
                if text == ")" {
                    self.called = closed.and_then(|frame| frame.before);
                }
            }
            _ => {}
        }
    }

    fn set_arrow(&mut self, arrow: bool) {
        match self.open.last_mut() {
            Some(frame) => frame.arrow = arrow,
            None => self.arrow = arrow,
        }
    }

    fn at_top(&self) -> bool {
        !self.arrow && !self.open.iter().any(|frame| frame.is_function || frame.arrow)
    }
}

/// The brace that follows these tokens opens the body of a class, or of a function with a declared result.
fn is_declaration(before: &[Token<'_>]) -> bool {
    let start = before.iter().rposition(|token| matches!(token.text, ";" | "{" | "}")).map_or(0, |at| at + 1);
    let header = &before[start..];
    let declares_result = header.windows(2).any(|pair| pair[0].text == ")" && pair[1].text == ":");
    declares_result || header.iter().any(|token| token.text == "class")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules() {
        for code in [
            "import fs from 'node:fs';",
            "'use strict'\nimport 'x'",
            "import{a}from'b'",
            "const a = 1\nexport { a }",
            "export default 3",
            "const r = await fetch('x')",
            "for (const x of y) { await x }",
            "for await (const x of y) { console.log(x) }",
            "if (a) { try { print(await x) } catch (e) {} }",
            "const o = { a: await b }",
            "const f = async (x) => await x\nawait f(1)",
        ] {
            assert!(is_module(code), "{code}");
        }
    }

    #[test]
    fn scripts() {
        for code in [
            "",
            "const fs = require('fs')",
            "// import a from 'b'\nrequire('c')",
            "/*\nimport a from 'b'\n*/",
            "const s = `\nimport a from 'b'\n`",
            "import('x').then(console.log)",
            "const importance = 1; important()",
            "async function f() { await g() }\nf()",
            "const f = async () => { await g() }",
            "const f = async () => await g()",
            "xs.map(async (x) => await x, 1)",
            "class A { async b() { await c } }",
            "const o = { async a() { await b } }",
            "const o = { import: 1, export: 2 }",
            "exports.a = 1",
            "const { a } = require('b'); await a()",
        ] {
            assert!(!is_module(code), "{code}");
        }
    }

    #[test]
    fn top_level_await_alone() {
        assert!(awaits_at_top("import a from 'b'\nawait a()"));
        assert!(!awaits_at_top("import a from 'b'\na()"));
        assert!(!awaits_at_top("export async function f(x: number): Promise<void> { await g() }"));
    }
}
