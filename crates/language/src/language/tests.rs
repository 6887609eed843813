use super::*;
use crate::data::LANGUAGES;

const SMALL: &str = r#"
name = "x"
title = "X"
version = ["{x}", "--version"]
[source]
main = "main.x"
extensions = ["x"]
[programs]
x = ["x"]
[run]
argv = ["{x}", "{main}"]
[install]
apt = ["x"]
"#;

fn refusal(text: &str) -> String {
    match Language::parse("x", text).unwrap_err() {
        DataError::Syntax { source, .. } => source.to_string(),
        DataError::Content { what, .. } => what,
    }
}

#[test]
fn every_file_is_well_formed() {
    for (name, text) in LANGUAGES {
        Language::parse(name, text).unwrap();
    }
}

#[test]
fn the_small_example_is_accepted() {
    let language = Language::parse("x", SMALL).unwrap();
    assert!(!language.is_compiled());
    assert!(!language.takes_arguments());
    assert_eq!(language.install.command(), "sudo apt-get install x");
}

#[test]
fn contradictions_are_refused() {
    assert!(refusal(&SMALL.replace("name = \"x\"", "name = \"y\"")).contains("called \"y\""));
    assert!(refusal(&SMALL.replace("main.x", "main.y")).contains("foreign extension"));
    assert!(refusal(&SMALL.replace("{main}", "{build}/main")).contains("run cannot use"));
    assert!(refusal(&SMALL.replace("{main}", "{mian}")).contains("unknown token {mian}"));
    assert!(refusal(&SMALL.replace("x = [\"x\"]", "x = [\"x\"]\ny = [\"y\"]")).contains("not used"));
    assert!(refusal(&SMALL.replace("title", "tytle")).contains("unknown field `tytle`"));
    assert!(refusal(&SMALL.replace("{main}", "{args}.x")).contains("mixes a list"));
}

#[test]
fn extensions() {
    assert_eq!(extension("a/b.tar.gz"), Some("gz"));
    assert_eq!(extension("a.b/Makefile"), None);
    assert_eq!(extension(".profile"), None);
    let python =
        Language::parse("python", LANGUAGES.iter().find(|(name, _)| *name == "python").unwrap().1).unwrap();
    assert!(python.owns_file("src/Main.PY"));
    assert!(!python.owns_file("main.pyc"));
}
