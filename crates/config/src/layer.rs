//! Laying layers over each other: the file's tree is checked against the known keys, variables and flags are put
//! at theirs, and every value keeps its origin.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::{Problem, ProblemKind, nearest};
use crate::origin::{Origin, Place, Provenance};
use crate::shape::{self, Shape, join};
use crate::variables::Override;
use crate::yaml::{self, Node};

/// The merged values, where each came from and what was wrong on the way.
#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) tree: Value,
    pub(crate) provenance: Provenance,
    pub(crate) problems: Vec<Problem>,
}

impl Layers {
    pub(crate) fn new() -> Self {
        Layers { tree: Value::Object(Map::new()), provenance: Provenance::default(), problems: Vec::new() }
    }

    pub(crate) fn file(&mut self, path: PathBuf, text: &str) {
        let path = Arc::new(path);
        match Node::parse(text) {
            Ok(node) => {
                let mut walk = Walk { path, layers: self };
                if let Some(tree) = walk.value(&node, shape::root(), "") {
                    self.tree = tree;
                }
            }
            Err(error) => self.problems.push(Problem {
                origin: Origin::File { path, place: error.place },
                key: String::new(),
                kind: ProblemKind::Syntax(error.message),
                expected: None,
                nearest: None,
            }),
        }
    }

    pub(crate) fn put(&mut self, Override { key, value, origin }: Override) {
        shape::insert(&mut self.tree, &key, value);
        self.provenance.set(&key, origin);
    }
}

/// What is known of a key: its shape, or else the keys that there are.
type Known<'s> = Result<&'s Shape, &'s [(String, Shape)]>;

/// A walk through the file's tree and the known keys side by side.
struct Walk<'a> {
    path: Arc<PathBuf>,
    layers: &'a mut Layers,
}

impl Walk<'_> {
    /// The value of a node, or nothing when it is absent, empty or wrong.
    fn value(&mut self, node: &Node, shape: &Shape, key: &str) -> Option<Value> {
        match (&shape.content, &node.content) {
            // A section whose keys are all commented out is null in YAML, and sets nothing.
            (shape::Content::Section(_) | shape::Content::Named(_) | shape::Content::List(_), _)
                if node.is_null() =>
            {
                None
            }
            (shape::Content::Section(keys), yaml::Content::Map(entries)) => {
                let known = |name: &str| keys.iter().find(|(key, _)| key == name).map(|(_, shape)| shape);
                Some(self.entries(entries, key, &|name| known(name).ok_or(keys.as_slice())))
            }
            (shape::Content::Named(inner), yaml::Content::Map(entries)) => {
                Some(self.entries(entries, key, &|_| Ok(inner)))
            }
            (shape::Content::List(inner), yaml::Content::List(items)) => {
                self.layers.provenance.set(key, self.origin(node.place));
                let items = items.iter().enumerate();
                let values = items.filter_map(|(n, item)| self.value(item, inner, &format!("{key}[{n}]")));
                Some(Value::Array(values.collect()))
            }
            (shape::Content::Leaf(_), yaml::Content::Scalar(value)) => {
                self.layers.provenance.set(key, self.origin(node.place));
                Some(value.clone())
            }
            _ => {
                let kind = ProblemKind::WrongType { found: found(node) };
                self.problem(node.place, key, kind, Some(shape.expected()), None);
                None
            }
        }
    }

    fn entries<'s>(
        &mut self,
        entries: &[yaml::Entry],
        key: &str,
        known: &dyn Fn(&str) -> Known<'s>,
    ) -> Value {
        let mut values = Map::new();
        for (n, entry) in entries.iter().enumerate() {
            let path = join(key, &entry.key);
            if let Some(first) = entries[..n].iter().find(|earlier| earlier.key == entry.key) {
                let kind = ProblemKind::DuplicateKey { first_line: first.key_place.line };
                self.problem(entry.key_place, &path, kind, None, None);
                continue;
            }
            match known(&entry.key) {
                Ok(shape) => {
                    if let Some(value) = self.value(&entry.value, shape, &path) {
                        values.insert(entry.key.clone(), value);
                    }
                }
                Err(keys) => {
                    let names = || keys.iter().map(|(name, _)| name.as_str());
                    let expected = format!("one of {}", names().collect::<Vec<_>>().join(", "));
                    let near = nearest(&entry.key, names()).map(str::to_owned);
                    self.problem(entry.key_place, &path, ProblemKind::UnknownKey, Some(expected), near);
                }
            }
        }
        Value::Object(values)
    }

    fn origin(&self, place: Place) -> Origin {
        Origin::File { path: self.path.clone(), place }
    }

    fn problem(
        &mut self,
        place: Place,
        key: &str,
        kind: ProblemKind,
        expected: Option<String>,
        nearest: Option<String>,
    ) {
        let origin = self.origin(place);
        self.layers.problems.push(Problem { origin, key: key.to_owned(), kind, expected, nearest });
    }
}

fn found(node: &Node) -> &'static str {
    match &node.content {
        yaml::Content::Scalar(Value::Null) => "nothing",
        yaml::Content::Scalar(Value::Bool(_)) => "true or false",
        yaml::Content::Scalar(Value::Number(_)) => "a number",
        yaml::Content::Scalar(_) => "text",
        yaml::Content::List(_) => "a list",
        yaml::Content::Map(_) => "a section",
    }
}
