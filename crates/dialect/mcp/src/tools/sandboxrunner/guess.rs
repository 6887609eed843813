//! Which language a piece of code is in, where nobody says: by its first line, else by words that are typical.

use sandstorm_language::Catalogue;

/// Where nothing speaks for a language.
const FALLBACK: &str = "bash";

/// Languages with what is typical of them; the first of those that are equally likely is taken.
const SIGNS: [(&str, &[&str]); 10] = [
    ("rust", &["fn main()", "println!(", "let mut ", "use std::", "impl ", "-> Result<"]),
    ("go", &["package main", "func main()", "fmt.Print", "import \"fmt\"", ":= "]),
    ("java", &["public class ", "public static void main", "System.out.print", "import java."]),
    ("csharp", &["using System", "Console.Write", "static void Main", "namespace "]),
    ("cpp", &["#include <iostream>", "#include <vector>", "using namespace std", "std::", "cout <<"]),
    ("c", &["#include <stdio.h>", "#include <stdlib.h>", "printf(", "int main("]),
    ("typescript", &[": string", ": number", ": boolean", "interface ", "export type ", " as const"]),
    ("javascript", &["console.log(", "const ", "let ", "=> ", "require(", "function ", "await "]),
    ("python", &["def ", "import ", "print(", "elif ", "self.", ":\n    ", "None"]),
    ("bash", &["echo ", "then\n", "\nfi", "\ndone", "$(", "set -e", "export "]),
];

/// The catalogue's name of the language.
pub(super) fn language(code: &str) -> &'static str {
    if let Some(language) = Catalogue::embedded().by_shebang(code) {
        return language.name.as_str();
    }
    let score = |name: &str| {
        let signs = SIGNS.iter().find(|(language, _)| *language == name).map_or(&[][..], |(_, signs)| signs);
        signs.iter().filter(|sign| code.contains(**sign)).count()
    };
    let (mut best, mut most) = (FALLBACK, 0);
    for (name, _) in SIGNS {
        let found = score(name);
        if found > most {
            (best, most) = (name, found);
        }
    }
    // Everything typical of JavaScript is in TypeScript too.
    if best == "javascript" && score("typescript") > 0 { "typescript" } else { best }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_programs_are_told_apart() {
        for (code, expected) in [
            ("#!/usr/bin/env python3\necho hello", "python"),
            ("import sys\nprint(sys.argv)", "python"),
            ("print(1)", "python"),
            ("const x = 1;\nconsole.log(x)", "javascript"),
            ("const x: number = 1;\nconsole.log(x)", "typescript"),
            ("package main\nimport \"fmt\"\nfunc main() { fmt.Println(1) }", "go"),
            ("use std::io;\nfn main() { println!(\"{}\", 1); }", "rust"),
            ("import java.util.*;\npublic class Main { public static void main(String[] a) {} }", "java"),
            ("#include <iostream>\nint main() { std::cout << 1; }", "cpp"),
            ("#include <stdio.h>\nint main(void) { printf(\"x\"); }", "c"),
            ("using System;\nclass P { static void Main() { Console.WriteLine(1); } }", "csharp"),
            ("if true; then\n  echo yes\nfi", "bash"),
            ("ls -la", "bash"),
            ("", "bash"),
        ] {
            assert_eq!(language(code), expected, "{code}");
        }
    }

    #[test]
    fn only_languages_of_the_catalogue_are_guessed() {
        for (name, _) in SIGNS {
            assert_eq!(Catalogue::embedded().get(name).map(|found| found.name.as_str()), Ok(name));
        }
    }
}
