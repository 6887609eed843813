//! Bytes in a document: a plain text where they are UTF-8, base64 where they are not.

use data_encoding::BASE64;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Content of a file or of standard input. JSON form: `"text"` or `{"base64": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blob(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Base64(Encoded),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    base64: String,
}

impl Blob {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Blob {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&self.0);
        }
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded { base64: BASE64.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Vec::deserialize(deserializer).map(Self);
        }
        match Wire::deserialize(deserializer) {
            Ok(Wire::Text(text)) => Ok(Self(text.into_bytes())),
            Ok(Wire::Base64(Encoded { base64 })) => {
                let decoded = BASE64.decode(base64.as_bytes());
                decoded.map(Self).map_err(|_| de::Error::custom("content is not standard, padded base64"))
            }
            Err(_) => Err(de::Error::custom("content must be a text or an object with `base64`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_forms() {
        let read = |json: &str| serde_json::from_str::<Blob>(json).map(Blob::into_bytes).ok();
        assert_eq!(read("\"hi\""), Some(b"hi".to_vec()));
        assert_eq!(read(r#"{"base64": "AP8="}"#), Some(vec![0, 255]));
        for bad in [
            r#"{"base64": "AP8"}"#,
            r#"{"base64": "*"}"#,
            "1",
            "null",
            r#"{"text": "x"}"#,
            r#"{"base64": "", "x": 1}"#,
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(bytes: Vec<u8>) {
            let blob = Blob(bytes);
            let json = serde_json::to_string(&blob).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Blob>(&json).unwrap(), &blob);
            let binary = postcard::to_stdvec(&blob).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Blob>(&binary).unwrap(), blob);
        }
    }
}
