//! The reference pages under `docs/reference/`, made from the tree and the list of variables.

use std::fmt::Write;

use crate::decode::limit_range;
use crate::shape::{self, Content, Shape, join};
use crate::show::plain;
use crate::variables::{Effect, Variable, variables};

/// The text of `docs/reference/configuration.md`.
pub fn configuration_page() -> String {
    let mut page = include_str!("reference/configuration.md").to_owned();
    if let Content::Section(keys) = &shape::root().content {
        let (sections, single): (Vec<_>, Vec<_>) =
            keys.iter().partition(|(_, shape)| !matches!(shape.content, Content::Leaf(_)));
        page.push_str("\n## Keys at the top\n");
        table(&mut page, single.into_iter().map(|(name, shape)| (name.clone(), shape)));
        for (name, shape) in sections {
            section(&mut page, name, shape);
        }
    }
    page
}

/// The text of `docs/reference/environment.md`.
pub fn environment_page() -> String {
    let mut page = include_str!("reference/environment.md").to_owned();
    let group = |page: &mut String, title: &str, second: &str, row: &dyn Fn(&Variable) -> Option<String>| {
        let _ = writeln!(page, "\n## {title}\n\n| variable | {second} | meaning |\n|---|---|---|");
        for variable in variables() {
            if let Some(cell) = row(variable) {
                let _ = writeln!(page, "| `{}` | {cell} | {} |", variable.name, variable.meaning);
            }
        }
    };
    group(&mut page, "Settings", "key", &|variable| match &variable.effect {
        Effect::Sets(key) => Some(format!("`{key}`")),
        _ => None,
    });
    group(&mut page, "Older names", "key", &|variable| match &variable.effect {
        Effect::Replaced { key, .. } => Some(format!("`{key}`")),
        Effect::Nothing { why } => Some(format!("none: {why}")),
        _ => None,
    });
    group(&mut page, "Others", "read by", &|variable| match &variable.effect {
        Effect::Special { reader } => Some((*reader).to_owned()),
        _ => None,
    });
    page
}

fn section(page: &mut String, path: &str, shape: &Shape) {
    let _ = write!(page, "\n## `{path}`\n\n{}\n", shape.about.join("\n\n"));
    table(page, rows(path, shape).into_iter());
}

/// Keys of a section with those of the sections in it, and of what its lists and chosen names hold.
fn rows<'a>(path: &str, shape: &'a Shape) -> Vec<(String, &'a Shape)> {
    match &shape.content {
        Content::Section(keys) => {
            keys.iter().flat_map(|(name, shape)| rows(&join(path, name), shape)).collect()
        }
        // A single value under each name says nothing that its section does not.
        Content::Named(inner) if matches!(inner.content, Content::Leaf(_)) => vec![(path.to_owned(), shape)],
        Content::Named(inner) => rows(&join(path, "<name>"), inner),
        Content::List(inner) => {
            let mut all = vec![(path.to_owned(), shape)];
            if matches!(inner.content, Content::Section(_)) {
                all.extend(rows(&format!("{path}[]"), inner));
            }
            all
        }
        Content::Leaf(_) => vec![(path.to_owned(), shape)],
    }
}

fn table<'a>(page: &mut String, rows: impl Iterator<Item = (String, &'a Shape)>) {
    page.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for (key, shape) in rows {
        let default = match &shape.content {
            Content::Leaf(leaf) => match &leaf.default {
                Some(value) => code(&plain(value)),
                None if leaf.optional => "not set".to_owned(),
                None => "required".to_owned(),
            },
            Content::List(_) => code(&shape.list_text()),
            Content::Named(_) => code("{}"),
            Content::Section(_) => String::new(),
        };
        let mut value = shape.expected().replace('|', "\\|");
        if let Some(range) = limit_range(&key) {
            let _ = write!(value, "; {range}");
        }
        let about = shape.about.join(" ").replace('|', "\\|");
        let _ = writeln!(page, "| `{key}` | {value} | {default} | {about} |");
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}
