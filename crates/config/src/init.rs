//! `config init`: a commented file with every key, made from the same tree as everything else.

use std::fmt::Write;

use serde_json::Value;

use crate::shape::{self, Content, Leaf, Shape};
use crate::show::plain;

const WIDTH: usize = 100;

const HEAD: &str = "\
# Configuration of Sandstorm. Every value below is the default, so any line with a value may go. A line that ends
# with a colon heads the indented lines below it, and goes with all of them. What has no default stands behind a `#`
# without a space: take the `#` away to set it.
# `sandstorm config check` checks this file; `sandstorm config show` says where each value comes from.
";

/// The text of a `sandstorm.yaml` that sets every key to its default; keys that have none, and
/// examples of lists, are commented out.
pub fn init_text() -> String {
    let mut text = HEAD.to_owned();
    if let Content::Section(keys) = &shape::root().content {
        for (name, shape) in keys {
            text.push('\n');
            key(&mut text, name, shape, 0);
        }
    }
    text
}

fn key(text: &mut String, name: &str, shape: &Shape, depth: usize) {
    let indent = "  ".repeat(depth);
    for paragraph in &shape.about {
        for line in wrap(paragraph, WIDTH - indent.len() - 2) {
            let _ = writeln!(text, "{indent}# {line}");
        }
    }
    match &shape.content {
        Content::Section(keys) => {
            let _ = writeln!(text, "{indent}{name}:");
            for (name, shape) in keys {
                key(text, name, shape, depth + 1);
            }
        }
        Content::Named(_) => collection(text, &indent, name, "{}", shape),
        Content::List(_) => collection(text, &indent, name, &shape.list_text(), shape),
        Content::Leaf(Leaf { default: Some(value), .. }) => {
            let _ = writeln!(text, "{indent}{name}: {}", plain(value));
        }
        Content::Leaf(_) => {
            let example = shape.example.as_ref().map(plain).unwrap_or_default();
            let _ = writeln!(text, "{indent}#{name}: {example}");
        }
    }
}

/// A list or map as it is by default, and an example of a full one as a comment.
fn collection(text: &mut String, indent: &str, name: &str, default: &str, shape: &Shape) {
    if let Some(example) = &shape.example {
        let _ = writeln!(text, "{indent}#{name}:");
        let mut lines = Vec::new();
        block(&mut lines, example);
        for line in lines {
            let _ = writeln!(text, "{indent}#  {line}");
        }
    }
    let _ = writeln!(text, "{indent}{name}: {default}");
}

/// A value as lines of YAML.
fn block(lines: &mut Vec<String>, value: &Value) {
    match value {
        Value::Array(items) => {
            for item in items {
                let mut inner = Vec::new();
                block(&mut inner, item);
                let marks = std::iter::once("- ").chain(std::iter::repeat("  "));
                lines.extend(marks.zip(inner).map(|(mark, line)| format!("{mark}{line}")));
            }
        }
        Value::Object(entries) => {
            for (name, value) in entries {
                if value.is_object() || value.is_array() {
                    let mut inner = Vec::new();
                    block(&mut inner, value);
                    lines.push(format!("{name}:"));
                    lines.extend(inner.into_iter().map(|line| format!("  {line}")));
                } else {
                    lines.push(format!("{name}: {}", plain(value)));
                }
            }
        }
        scalar => lines.push(plain(scalar)),
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
