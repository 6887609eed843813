//! A YAML document as a tree in which every key and every value knows its line and column.
//!
//! The typed tree is not decoded from YAML directly: serde would lose the place of a value once it is merged
//! with other layers, and would stop at the first unknown key. This tree is checked against the known keys
//! instead, all of it, before anything is decoded.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy, Spanned};

use crate::origin::Place;

/// A value and where it stands in the file.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Null, boolean, number or text.
    Scalar(Value),
    List(Vec<Node>),
    /// In the order of the file, duplicates included: they are reported, not dropped.
    Map(Vec<Entry>),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) value: Node,
}

/// Text that is not YAML at all.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) place: Place,
    pub(crate) message: String,
}

impl Node {
    pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
        let error = match decode(text, DuplicateKeyPolicy::Error) {
            Ok(node) => return Ok(node),
            Err(error) => error,
        };
        // The parser's error for a duplicate has no key path. With both entries kept, the caller can name it.
        if let serde_saphyr::Error::DuplicateMappingKey { .. } = error.without_snippet()
            && let Ok(node) = decode(text, DuplicateKeyPolicy::LastWins)
            && node.has_duplicates()
        {
            return Ok(node);
        }
        let place = error.location().map_or(Place::start(), place);
        Err(SyntaxError { place, message: first_line(&error.without_snippet().to_string()) })
    }

    fn has_duplicates(&self) -> bool {
        match &self.content {
            Content::Scalar(_) => false,
            Content::List(items) => items.iter().any(Node::has_duplicates),
            Content::Map(entries) => entries.iter().enumerate().any(|(n, e)| {
                entries[..n].iter().any(|other| other.key == e.key) || e.value.has_duplicates()
            }),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }
}

fn decode(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Node, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        merge_keys: MergeKeyPolicy::Error,
        // Far more than any real file needs, and little enough that a hostile one fails at once.
        budget: serde_saphyr::budget! { max_nodes: 20_000, max_events: 50_000, max_depth: 16 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 10_000 },
        // JSON has no such numbers; as text they fail where a number is wanted, with the key's own message.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        strict_booleans: true,
        // A snippet would print lines of the file, and one of them may be a secret in the wrong place.
        with_snippet: false,
    };
    // A file of comments only, or none at all, sets nothing.
    let nothing = || Node { place: Place::start(), content: Content::Map(Vec::new()) };
    let node = serde_saphyr::from_str_with_options::<Option<Node>>(text, options)?;
    Ok(node.unwrap_or_else(nothing))
}

fn place(location: serde_saphyr::Location) -> Place {
    Place {
        line: u32::try_from(location.line()).unwrap_or(u32::MAX).max(1),
        column: u32::try_from(location.column()).unwrap_or(u32::MAX).max(1),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Node { place: place(spanned.referenced), content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Content, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(Value::from(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(Value::from(value)))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value.to_string())))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value.to_string())))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Content, E> {
        let number = Number::from_f64(value).map_or_else(|| Value::String(value.to_string()), Value::Number);
        Ok(Content::Scalar(number))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(Value::String(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let value = access.next_value()?;
            entries.push(Entry { key: key.value, key_place: place(key.referenced), value });
        }
        Ok(Content::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<Entry> {
        match Node::parse(text).unwrap().content {
            Content::Map(entries) => entries,
            other => panic!("not a map: {other:?}"),
        }
    }

    fn scalar(node: &Node) -> &Value {
        let Content::Scalar(value) = &node.content else { panic!("not a scalar: {node:?}") };
        value
    }

    fn at(place: Place) -> (u32, u32) {
        (place.line, place.column)
    }

    #[test]
    fn keys_and_values_have_places() {
        let top = entries("# c\nlimits:\n  memory: 1G\n  cpus: 0.5\nlist:\n  - a: 1\n  - b\n");
        assert_eq!((top[0].key.as_str(), at(top[0].key_place)), ("limits", (2, 1)));
        let Content::Map(limits) = &top[0].value.content else { panic!() };
        assert_eq!(at(limits[0].key_place), (3, 3));
        assert_eq!(at(limits[0].value.place), (3, 11));
        assert_eq!(scalar(&limits[1].value), &serde_json::json!(0.5));
        let Content::List(items) = &top[1].value.content else { panic!() };
        assert_eq!(at(items[1].place), (7, 5));
    }

    #[test]
    fn duplicates_are_kept() {
        let top = entries("a: 1\nb: 2\na: 3\n");
        let keys: Vec<_> = top.iter().map(|e| (e.key.as_str(), e.key_place.line)).collect();
        assert_eq!(keys, [("a", 1), ("b", 2), ("a", 3)]);
    }

    #[test]
    fn duplicates_that_the_parser_collapses_are_refused() {
        // After a key that is a number, the parser hands over the last of two equal keys only.
        let error = Node::parse("1: x\na: 1\na: 3\n").unwrap_err();
        assert_eq!((error.place.line, error.message.contains("duplicate")), (3, true), "{error:?}");
    }

    #[test]
    fn scalars_keep_their_kind() {
        let text = "a: true\nb: 'true'\nc: 12\nd: '12'\ne: ~\nf:\ng: .nan\nh: yes\ni: 1e3\nj: -1\nk: 0x10\n\
                    l: 99999999999999999999\n";
        let values: Vec<_> = entries(text).iter().map(|e| scalar(&e.value).to_string()).collect();
        assert_eq!(
            values,
            [
                "true", "\"true\"", "12", "\"12\"", "null", "null", "\".nan\"", "\"yes\"", "1000.0", "-1",
                "16", "1e+20"
            ]
        );
    }

    #[test]
    fn empty_files_set_nothing() {
        for text in ["", "# only a comment\n", "---\n", "---\n# c\n...\n"] {
            assert!(
                matches!(Node::parse(text).unwrap().content, Content::Map(e) if e.is_empty()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let error = Node::parse("limits:\n  memory: [1\nids: 3\n").unwrap_err();
        assert!(error.place.line >= 2, "{error:?}");
        assert!(!error.message.contains('\n'));
        assert!(Node::parse("a: 1\n---\nb: 2\n").is_err());
        assert!(Node::parse("base: &x {a: 1}\nc:\n  <<: *x\n").is_err());
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for n in 1..9 {
            let p = n - 1;
            text.push_str(&format!(
                "a{n}: &a{n} [*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p}]\n"
            ));
        }
        assert!(Node::parse(&text).is_err());
    }
}
