//! Fields of a request, read one by one. What is wrong is collected, so that one answer names all of it.
//!
//! The rules are those of the API's first server: unknown fields are ignored, `null` is as good as absent where a field may
//! be absent, and a number or truth value may be written as text.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FieldError {
    /// Names, and numbers of places in lists.
    loc: Vec<Value>,
    msg: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl FieldError {
    pub(crate) fn new<'a>(
        loc: impl IntoIterator<Item = &'a str>,
        msg: impl Into<String>,
        kind: &'static str,
    ) -> Self {
        Self { loc: loc.into_iter().map(Value::from).collect(), msg: msg.into(), kind }
    }

    /// The same at a place within what was named.
    pub(crate) fn at(mut self, place: usize) -> Self {
        self.loc.push(Value::from(place));
        self
    }
}

/// Fields of a body or a query.
#[derive(Debug)]
pub(crate) struct Fields {
    /// `body` or `query`, as errors name it.
    place: &'static str,
    given: Map<String, Value>,
    wrong: Vec<FieldError>,
}

impl Fields {
    pub(crate) fn new(place: &'static str, given: Map<String, Value>) -> Self {
        Self { place, given, wrong: Vec::new() }
    }

    /// A text that must be there. When it is not, the text is empty and [`Fields::done`] fails.
    pub(crate) fn text(&mut self, name: &str) -> String {
        match self.given.remove(name) {
            Some(Value::String(text)) => text,
            Some(_) => self.refuse(name, "Input should be a valid string", "string_type"),
            None => self.refuse(name, "Field required", "missing"),
        }
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            _ => self.refuse(name, "Input should be a valid string", "string_type"),
        }
    }

    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        let items = match self.take(name) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => return self.refuse(name, "Input should be a valid list", "list_type"),
        };
        let mut texts = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            match item {
                Value::String(text) => texts.push(text),
                _ => {
                    let wrong =
                        FieldError::new([self.place, name], "Input should be a valid string", "string_type");
                    self.wrong.push(wrong.at(place));
                }
            }
        }
        texts
    }

    /// A list of objects that must be there.
    pub(crate) fn objects(&mut self, name: &str) -> Vec<Map<String, Value>> {
        let items = match self.given.remove(name) {
            Some(Value::Array(items)) => items,
            Some(_) => return self.refuse(name, "Input should be a valid list", "list_type"),
            None => return self.refuse(name, "Field required", "missing"),
        };
        let mut objects = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            match item {
                Value::Object(object) => objects.push(object),
                _ => {
                    let wrong = FieldError::new(
                        [self.place, name],
                        "Input should be a valid dictionary",
                        "dict_type",
                    );
                    self.wrong.push(wrong.at(place));
                }
            }
        }
        objects
    }

    /// An object; an empty one when there is none.
    pub(crate) fn object(&mut self, name: &str) -> Map<String, Value> {
        match self.take(name) {
            None => Map::new(),
            Some(Value::Object(object)) => object,
            Some(_) => self.refuse(name, "Input should be a valid dictionary", "dict_type"),
        }
    }

    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let said = match self.take(name) {
            None => return false,
            Some(Value::Bool(flag)) => return flag,
            Some(Value::String(text)) => text.to_ascii_lowercase(),
            Some(other) => other.to_string(),
        };
        match said.as_str() {
            "true" | "1" | "yes" | "on" | "y" | "t" => true,
            "false" | "0" | "no" | "off" | "n" | "f" => false,
            _ => self.refuse(
                name,
                "Input should be a valid boolean, unable to interpret input",
                "bool_parsing",
            ),
        }
    }

    /// A whole number within `range`, `otherwise` when there is none.
    pub(crate) fn whole(&mut self, name: &str, range: RangeInclusive<u64>, otherwise: u64) -> u64 {
        let number: Option<i128> = match self.take(name) {
            None => return otherwise,
            Some(Value::Number(number)) => {
                number.as_i64().map(i128::from).or(number.as_u64().map(i128::from))
            }
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        let Some(number) = number else {
            return self.refuse(name, "Input should be a valid integer", "int_parsing");
        };
        if number < i128::from(*range.start()) {
            let msg = format!("Input should be greater than or equal to {}", range.start());
            return self.refuse(name, msg, "greater_than_equal");
        }
        match u64::try_from(number) {
            Ok(number) if number <= *range.end() => number,
            _ => {
                let msg = format!("Input should be less than or equal to {}", range.end());
                self.refuse(name, msg, "less_than_equal")
            }
        }
    }

    /// Notes what is wrong and stands in for the value.
    pub(crate) fn refuse<T: Default>(&mut self, name: &str, msg: impl Into<String>, kind: &'static str) -> T {
        self.wrong.push(FieldError::new([self.place, name], msg, kind));
        T::default()
    }

    /// Fails when any field was wrong. Nothing that was read may be used before.
    pub(crate) fn done(self) -> Result<(), Refusal> {
        if self.wrong.is_empty() { Ok(()) } else { Err(Refusal::Invalid(self.wrong)) }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.given.remove(name).filter(|value| !value.is_null())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        match value {
            Value::Object(given) => Fields::new("body", given),
            other => panic!("{other} is no object"),
        }
    }

    fn wrong(fields: Fields) -> Value {
        match fields.done() {
            Err(Refusal::Invalid(wrong)) => serde_json::to_value(wrong).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn absent_and_null_are_defaults() {
        let mut fields = fields(json!({"a": null, "unknown": 1}));
        assert_eq!(fields.optional_text("a"), None);
        assert_eq!(fields.texts("a"), Vec::<String>::new());
        assert_eq!(fields.whole("a", 0..=9, 5), 5);
        assert!(!fields.flag("a"));
        assert!(fields.object("a").is_empty());
        assert!(fields.done().is_ok());
    }

    #[test]
    fn all_that_is_wrong_is_named() {
        let mut fields =
            fields(json!({"b": 1, "c": ["x", 2], "d": -1, "e": 10, "f": "maybe", "g": 1.5, "h": []}));
        fields.text("a");
        fields.text("b");
        fields.texts("c");
        fields.whole("d", 0..=9, 0);
        fields.whole("e", 0..=9, 0);
        fields.flag("f");
        fields.whole("g", 0..=9, 0);
        fields.object("h");
        let kinds: Vec<_> =
            wrong(fields).as_array().unwrap().iter().map(|e| (e["loc"].clone(), e["type"].clone())).collect();
        assert_eq!(
            kinds,
            [
                (json!(["body", "a"]), json!("missing")),
                (json!(["body", "b"]), json!("string_type")),
                (json!(["body", "c", 1]), json!("string_type")),
                (json!(["body", "d"]), json!("greater_than_equal")),
                (json!(["body", "e"]), json!("less_than_equal")),
                (json!(["body", "f"]), json!("bool_parsing")),
                (json!(["body", "g"]), json!("int_parsing")),
                (json!(["body", "h"]), json!("dict_type")),
            ]
        );
    }

    #[test]
    fn numbers_and_truth_may_be_texts() {
        let mut fields = fields(json!({"a": "7", "b": "On", "c": 1, "d": "18446744073709551616"}));
        assert_eq!(fields.whole("a", 0..=9, 0), 7);
        assert!(fields.flag("b") && fields.flag("c"));
        fields.whole("d", 0..=9, 0);
        assert_eq!(wrong(fields)[0]["type"], "less_than_equal");
    }
}
