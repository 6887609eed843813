//! How sizes, spans of time and shares of processors look in the file: people's words both ways.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Serde form of a `ByteSize`: read as its own, written as `512MiB`.
pub(crate) mod size {
    use sandstorm_types::ByteSize;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &ByteSize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(size)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        ByteSize::deserialize(deserializer)
    }
}

/// The same for a size that may be left out.
pub(crate) mod optional_size {
    use sandstorm_types::ByteSize;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Size(#[serde(with = "super::size")] ByteSize);

    pub(crate) fn serialize<S: Serializer>(
        size: &Option<ByteSize>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        size.map(Size).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ByteSize>, D::Error> {
        Ok(Option::<Size>::deserialize(deserializer)?.map(|Size(size)| size))
    }
}

/// Serde form of a `Duration`: read as a number of seconds or `1m30s`, written as `1m30s`.
pub(crate) mod span {
    use std::time::Duration;

    use sandstorm_types::duration;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&duration::format(*span))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        duration::seconds::deserialize(deserializer)
    }
}

/// The same for a span that may be left out.
pub(crate) mod optional_span {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Span(#[serde(with = "super::span")] Duration);

    pub(crate) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        span.map(Span).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Span>::deserialize(deserializer)?.map(|Span(span)| span))
    }
}

/// Declares a type that stands for a form in the JSON schema.
macro_rules! schema_form {
    ($name:ident, $schema:tt) => {
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema_form!(Size, { "type": ["integer", "string"], "format": "byte-size", "minimum": 0, "pattern": "^[0-9]+([kKmMgGtT][iI]?)?[bB]?$" });
schema_form!(Span, { "type": ["number", "string"], "format": "time-span", "minimum": 0, "pattern": "^[0-9.]+$|^([0-9.]+(d|h|m|s|ms))+$" });
schema_form!(Dollars, { "type": ["number", "string"], "format": "dollars", "minimum": 0, "pattern": "^[0-9]+(\\.[0-9]{1,12})?$" });
schema_form!(Cpus, { "type": ["number", "string"], "format": "cpu-share", "minimum": 0, "pattern": "^([0-9]+(\\.[0-9]{1,3})?|[0-9]+m)$" });
