//! The package, the public type and the class with `main` of a Java file.

use super::scan::{Dialect, Token, tokens};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) package: Option<String>,
    /// The top-level type that the file has to be named after.
    pub(super) public_type: Option<String>,
    /// The first top-level type that declares `void main(`.
    pub(super) main_type: Option<String>,
}

impl Outline {
    pub(super) fn of(code: &str) -> Self {
        let tokens = tokens(code, Dialect::Java);
        let mut outline = Self::default();
        let mut depth = 0_usize;
        let mut is_public = false;
        let mut current = None;
        for (index, token) in tokens.iter().enumerate() {
            let text_at = |offset: usize| tokens.get(index + offset).map(|token| token.text);
            match token.text {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            match (depth, token.text) {
                (0, "package") if outline.package.is_none() => {
                    outline.package = package(&tokens[index + 1..])
                }
                (0, ";" | "}") => is_public = false,
                (0, "public") => is_public = true,
                (0, "class" | "interface" | "enum") => current = text_at(1),
                (0, "record") if matches!(text_at(2), Some("(" | "<")) => current = text_at(1),
                (1, "void") if text_at(1) == Some("main") && text_at(2) == Some("(") => {
                    outline.main_type = outline.main_type.or_else(|| current.map(str::to_owned));
                }
                _ => {}
            }
            if depth == 0 && is_public && matches!(token.text, "class" | "interface" | "enum" | "record") {
                outline.public_type = outline.public_type.or_else(|| current.map(str::to_owned));
            }
        }
        outline
    }
}

fn package(after: &[Token<'_>]) -> Option<String> {
    let name: String =
        after.iter().map(|token| token.text).take_while(|text| *text != ";").take(64).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(package: Option<&str>, public: Option<&str>, main: Option<&str>) -> Outline {
        let own = |name: Option<&str>| name.map(str::to_owned);
        Outline { package: own(package), public_type: own(public), main_type: own(main) }
    }

    #[test]
    fn outlines() {
        let plain = "public class Main { public static void main(String[] a) {} }";
        assert_eq!(Outline::of(plain), outline(None, Some("Main"), Some("Main")));

        let hidden = "class Helper { void help() {} }\nclass App { static void main(String... a) { } }";
        assert_eq!(Outline::of(hidden), outline(None, None, Some("App")));

        let packaged = "package com.example.app;\nimport java.util.*;\n\
            /** public class Wrong */ public final class Right<T> { enum Inner { A } \
            static String s = \"public class No {\"; public static void main(String[] a) {} }";
        assert_eq!(Outline::of(packaged), outline(Some("com.example.app"), Some("Right"), Some("Right")));

        let record =
            "public record Point(int x, int y) {}\nclass Go { public static void main(String[] a) {} }";
        assert_eq!(Outline::of(record), outline(None, Some("Point"), Some("Go")));

        let nested = "class Outer { static class Inner { public static void main(String[] a) {} } }";
        assert_eq!(Outline::of(nested), outline(None, None, None));
    }

    #[test]
    fn broken_code_has_an_outline_too() {
        assert_eq!(Outline::of("public class"), outline(None, None, None));
        assert_eq!(Outline::of("}}} public class A {"), outline(None, Some("A"), None));
        assert_eq!(Outline::of("package"), outline(None, None, None));
    }
}
