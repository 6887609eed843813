//! The JSON schema of `sandstorm.yaml`, for editors.

use serde_json::{Value, json};

use crate::shape;

/// The schema as text, as it stands in `api/config.schema.json`.
pub fn schema_json() -> String {
    let mut schema = shape::schema();
    schema["title"] = json!("sandstorm.yaml");
    tidy(&mut schema);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

/// Takes out defaults of whole sections, which repeat those of their keys, and lets a section be empty: one
/// whose keys are all commented out is null in YAML.
fn tidy(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("default").is_some_and(|value| value.is_object() || value.is_null()) {
        object.remove("default");
    }
    for key in ["properties", "items", "additionalProperties"] {
        match object.get_mut(key) {
            Some(Value::Object(properties)) if key == "properties" => {
                properties.values_mut().for_each(|value| {
                    tidy(value);
                    if value["type"] == "object" || value["type"] == "array" {
                        value["type"] = json!([value["type"], "null"]);
                    }
                })
            }
            Some(value) => tidy(value),
            None => {}
        }
    }
}
