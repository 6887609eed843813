//! One argument or value of a plan, with `{tokens}` in it.
//!
//! Templates become argument lists, never a line for a shell: what a user chose (a file name, an argument) can only
//! ever be one argument, or a whole number of them.

use serde::Deserialize;

/// What a `{name}` in a template stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// The user's arguments: none, one or many. Stands alone.
    Args,
    /// The main file and the language's other sources. Stands alone.
    Sources,
    /// Absolute path of the main file, and of the folder that holds it.
    Main,
    MainFolder,
    /// What the compiler made of the main file.
    Output,
    /// The name by which the runtime starts the program, where it is not a path.
    Entry,
    Build,
    Support,
    Warm,
    /// Nine tenths of the memory limit, for collectors that can be told to hurry.
    MemoryLowMib,
    /// Five quarters of the memory limit, for runtimes that insist on a ceiling of their own.
    MemoryHighMib,
    /// A program of the toolchain.
    Program(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Token(Token),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Template(pub(crate) Vec<Part>);

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| format!("unclosed brace in {text:?}"))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Token(token(name)));
            rest = after;
        }
        if !rest.is_empty() || parts.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let many = |part: &Part| matches!(part, Part::Token(Token::Args | Token::Sources));
        if parts.len() > 1 && parts.iter().any(many) {
            return Err(format!("{text:?} mixes a list with text"));
        }
        Ok(Self(parts))
    }
}

impl Template {
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.0.iter().filter_map(|part| match part {
            Part::Token(token) => Some(token),
            Part::Text(_) => None,
        })
    }
}

fn token(name: &str) -> Token {
    match name {
        "args" => Token::Args,
        "sources" => Token::Sources,
        "main" => Token::Main,
        "main_folder" => Token::MainFolder,
        "output" => Token::Output,
        "entry" => Token::Entry,
        "build" => Token::Build,
        "support" => Token::Support,
        "warm" => Token::Warm,
        "memory_low_mib" => Token::MemoryLowMib,
        "memory_high_mib" => Token::MemoryHighMib,
        program => Token::Program(program.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Template, String> {
        Template::try_from(text.to_owned())
    }

    #[test]
    fn text_and_tokens() {
        assert_eq!(parse("-v").unwrap().0, [Part::Text("-v".into())]);
        assert_eq!(parse("").unwrap().0, [Part::Text(String::new())]);
        assert_eq!(
            parse("-o{build}/main").unwrap().0,
            [Part::Text("-o".into()), Part::Token(Token::Build), Part::Text("/main".into())]
        );
        assert_eq!(parse("{cc}").unwrap().0, [Part::Token(Token::Program("cc".into()))]);
    }

    #[test]
    fn lists_stand_alone_and_braces_close() {
        assert!(parse("{args}").is_ok());
        assert!(parse("x{args}").unwrap_err().contains("mixes"));
        assert!(parse("{sources} ").unwrap_err().contains("mixes"));
        assert!(parse("{main").unwrap_err().contains("unclosed"));
    }
}
