//! The known keys as data: names, kinds, defaults and meanings, read off the JSON schema of the typed tree.
//!
//! The structs of [`crate::tree`] are the only place where a key is declared. Checking a file, naming
//! environment variables, `config init`, `config show` and the reference pages all walk this shape.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::show::plain;
use crate::tree::Config;
use crate::yaml::{self, Entry, Node};

/// A key's place in the tree, its meaning and what may stand there.
#[derive(Debug)]
pub(crate) struct Shape {
    /// Paragraphs, each on one line.
    pub(crate) about: Vec<String>,
    pub(crate) example: Option<Value>,
    /// What a list holds that nobody set.
    pub(crate) items: Vec<Value>,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Named keys, in the order of the struct.
    Section(Vec<(String, Shape)>),
    /// Keys that the operator chooses.
    Named(Box<Shape>),
    List(Box<Shape>),
    Leaf(Leaf),
}

/// One value.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) kinds: Vec<Kind>,
    /// The only texts allowed, if the value is a choice.
    pub(crate) choices: Vec<String>,
    /// Absent where the default is "not set".
    pub(crate) default: Option<Value>,
    /// May be null, which is "not set".
    pub(crate) optional: bool,
    /// How a value is written, where its kinds do not say it.
    form: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Integer,
    Number,
    Text,
}

/// The shape of the whole configuration.
pub(crate) fn root() -> &'static Shape {
    static ROOT: LazyLock<Shape> =
        LazyLock::new(|| Shape::from_schema(&schema(), ordered_defaults().as_ref()));
    &ROOT
}

/// The schema with every definition in place, so that it can be walked without looking up references.
pub(crate) fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

/// The default tree with its keys in the order of the structs, which the schema's maps do not keep.
fn ordered_defaults() -> Option<Node> {
    let text = serde_json::to_string(&Config::default()).ok()?;
    Node::parse(&text).ok()
}

impl Shape {
    fn from_schema(schema: &Value, order: Option<&Node>) -> Shape {
        let about = schema["description"].as_str().unwrap_or_default();
        Shape {
            about: about.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect(),
            example: schema["examples"].get(0).cloned(),
            items: schema["default"].as_array().cloned().unwrap_or_default(),
            content: Content::from_schema(schema, order),
        }
    }

    /// Every leaf below a section, with its path; what stands in lists or under chosen names is left out,
    /// because it has no fixed path.
    pub(crate) fn leaves(&self) -> Vec<(String, &Shape, &Leaf)> {
        let mut found = Vec::new();
        self.collect("", &mut found);
        found
    }

    fn collect<'a>(&'a self, path: &str, found: &mut Vec<(String, &'a Shape, &'a Leaf)>) {
        match &self.content {
            Content::Section(keys) => {
                for (name, shape) in keys {
                    shape.collect(&join(path, name), found);
                }
            }
            Content::Leaf(leaf) => found.push((path.to_owned(), self, leaf)),
            Content::Named(_) | Content::List(_) => {}
        }
    }

    /// The leaf at a fixed path.
    pub(crate) fn leaf(&self, path: &str) -> Option<&Leaf> {
        let mut shape = self;
        for name in path.split('.') {
            let Content::Section(keys) = &shape.content else { return None };
            shape = keys.iter().find(|(key, _)| key == name).map(|(_, shape)| shape)?;
        }
        if let Content::Leaf(leaf) = &shape.content { Some(leaf) } else { None }
    }

    /// The default of a list as one line of YAML.
    pub(crate) fn list_text(&self) -> String {
        format!("[{}]", self.items.iter().map(plain).collect::<Vec<_>>().join(", "))
    }

    /// What may stand here, for people.
    pub(crate) fn expected(&self) -> String {
        match &self.content {
            Content::Section(keys) => {
                let names: Vec<_> = keys.iter().map(|(name, _)| name.as_str()).collect();
                format!("a section with the keys {}", names.join(", "))
            }
            Content::Named(_) => "a section whose keys you choose".to_owned(),
            Content::List(_) => "a list".to_owned(),
            Content::Leaf(leaf) => leaf.expected(),
        }
    }
}

impl Content {
    fn from_schema(schema: &Value, order: Option<&Node>) -> Content {
        if let Some(properties) = schema["properties"].as_object() {
            let entries: &[Entry] = match order.map(|node| &node.content) {
                Some(yaml::Content::Map(entries)) => entries,
                _ => &[],
            };
            let mut keys: Vec<_> = properties.iter().collect();
            keys.sort_by_key(|(name, _)| entries.iter().position(|entry| entry.key == **name));
            let inner = |name: &str| entries.iter().find(|entry| entry.key == name).map(|entry| &entry.value);
            let keys = keys
                .into_iter()
                .map(|(name, schema)| (name.clone(), Shape::from_schema(schema, inner(name))));
            return Content::Section(keys.collect());
        }
        if schema["additionalProperties"].is_object() {
            return Content::Named(Box::new(Shape::from_schema(&schema["additionalProperties"], None)));
        }
        if schema["items"].is_object() {
            return Content::List(Box::new(Shape::from_schema(&schema["items"], None)));
        }
        Content::Leaf(Leaf::from_schema(schema))
    }
}

impl Leaf {
    fn from_schema(schema: &Value) -> Leaf {
        let mut leaf = Leaf {
            kinds: Vec::new(),
            choices: Vec::new(),
            default: Some(&schema["default"]).filter(|value| !value.is_null()).cloned(),
            optional: false,
            form: None,
        };
        leaf.gather(schema);
        leaf
    }

    /// Schemas spell "one of these" in several ways; all of them end up in one flat set.
    fn gather(&mut self, schema: &Value) {
        for name in strings(&schema["type"]) {
            match name {
                "boolean" => self.kinds.push(Kind::Bool),
                "integer" => self.kinds.push(Kind::Integer),
                "number" => self.kinds.push(Kind::Number),
                "string" => self.kinds.push(Kind::Text),
                "null" => self.optional = true,
                _ => {}
            }
        }
        self.form = self.form.or(match schema["format"].as_str() {
            Some("byte-size") => Some("a size such as `512MiB`, or a number of bytes"),
            Some("time-span") => Some("a time such as `1m30s`, or a number of seconds"),
            Some("dollars") => Some("an amount of US dollars such as `0.001`"),
            Some("cpu-share") => Some("a number of processors such as `0.5`"),
            _ => None,
        });
        self.choices.extend(strings(&schema["enum"]).map(str::to_owned));
        self.choices.extend(schema["const"].as_str().map(str::to_owned));
        for branch in ["oneOf", "anyOf"] {
            for schema in schema[branch].as_array().into_iter().flatten() {
                self.gather(schema);
            }
        }
    }

    pub(crate) fn expected(&self) -> String {
        if !self.choices.is_empty() {
            return format!("one of {}", self.choices.join(", "));
        }
        if let Some(form) = self.form {
            return form.to_owned();
        }
        let mut words: Vec<_> = self.kinds.iter().map(|kind| kind.name()).collect();
        words.dedup();
        words.join(" or ")
    }

    /// Reads text from a variable or flag as the kind of value that stands here.
    pub(crate) fn value_of(&self, text: &str) -> Result<Value, String> {
        // Kinds that also take text parse numbers by themselves, with their units.
        if self.kinds.contains(&Kind::Text) {
            return Ok(Value::String(text.to_owned()));
        }
        let value = match self.kinds.first() {
            Some(Kind::Bool) => boolean(text).map(Value::Bool),
            Some(Kind::Integer | Kind::Number) => text.trim().parse().ok().map(Value::Number),
            Some(Kind::Text) | None => None,
        };
        value.ok_or_else(|| format!("`{text}` is not {}", self.expected()))
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Bool => "true or false",
            Kind::Integer => "a whole number",
            Kind::Number => "a number",
            Kind::Text => "text",
        }
    }
}

/// The spellings of yes and no that variables and flags may use.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Puts a value at a path of sections, making the sections on the way.
pub(crate) fn insert(tree: &mut Value, path: &str, value: Value) {
    let mut place = tree;
    for name in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[name];
    }
    *place = value;
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    let one = value.as_str().into_iter();
    one.chain(value.as_array().into_iter().flatten().filter_map(Value::as_str))
}
