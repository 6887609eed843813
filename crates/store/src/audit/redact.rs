//! Taking secrets out of what is recorded, for the day when a caller forgets to.

use serde_json::Map;

use crate::Json;

const REDACTED: &str = "[redacted]";

/// Members with such a word in their name hold secrets; those of `env` may.
const SECRET_WORDS: [&str; 8] =
    ["secret", "token", "password", "passwd", "authorization", "api_key", "apikey", "credential"];

pub(super) fn redacted_json(json: &Json, text: &dyn Fn(&str) -> String) -> Json {
    match json {
        Json::String(value) => Json::String(text(&redacted_text(value))),
        Json::Array(items) => items.iter().map(|item| redacted_json(item, text)).collect(),
        Json::Object(members) => Json::Object(
            members
                .iter()
                .map(|(name, value)| (text(&redacted_text(name)), member(name, value, text)))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn member(name: &str, value: &Json, text: &dyn Fn(&str) -> String) -> Json {
    let lower = name.to_lowercase();
    if SECRET_WORDS.iter().any(|word| lower.contains(word)) {
        return Json::String(REDACTED.to_owned());
    }
    match value {
        // Which variables were set may be known, not what to.
        Json::Object(variables) if lower == "env" => Json::Object(
            variables.keys().map(|key| (text(key), Json::String(REDACTED.to_owned()))).collect::<Map<_, _>>(),
        ),
        value => redacted_json(value, text),
    }
}

/// Without anything that has the form of one of our keys: `ss_<id>_<43>` or `e2b_<40 hexadecimal digits>`.
pub(super) fn redacted_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(length) = native_key(rest).or_else(|| e2b_key(rest)) {
            safe.push_str(REDACTED);
            rest = &rest[length..];
        } else {
            safe.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    safe
}

fn native_key(text: &str) -> Option<usize> {
    let after = text.strip_prefix("ss_")?;
    let id = after.bytes().take_while(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7')).count();
    let secret = after.get(id..)?.strip_prefix('_')?;
    let secret = secret.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).count();
    // A little less than a whole one is enough of it to be a secret.
    (secret >= 20).then_some("ss_".len() + id + 1 + secret)
}

fn e2b_key(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("e2b_")?.bytes().take_while(u8::is_ascii_hexdigit).count();
    (digits >= 20).then_some("e2b_".len() + digits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_taken_out_wherever_they_stand() {
        let native = format!("ss_abcdefghijkl_{}", "Ab-_5".repeat(8) + "xyz");
        let foreign = format!("e2b_{}", "0aB9".repeat(10));
        let text = redacted_text(&format!("é{native}, {foreign}; ss_short_x e2b_12"));
        assert_eq!(text, "é[redacted], [redacted]; ss_short_x e2b_12");
    }

    #[test]
    fn members_that_hold_secrets_and_values_of_variables_go() {
        let json = json!({"env": {"A": "canary"}, "list": [{"apiToken": "canary", "n": 1}], "name": "kept"});
        let safe = redacted_json(&json, &str::to_owned);
        assert_eq!(
            safe,
            json!({"env": {"A": "[redacted]"}, "list": [{"apiToken": "[redacted]", "n": 1}], "name": "kept"})
        );
    }
}
