//! Variables for one execution: set before it in the living interpreter, and as they were after it.

use std::collections::BTreeMap;

use sandstorm_types::ContextId;

use super::defaults::Turn;
use crate::door::Guest;
use crate::state::Dialect;

/// Code that sets variables and remembers what was there, and code that puts that back. The names are checked; texts of
/// JSON are texts of all these languages but Bash.
pub(super) fn setting(
    language: &str,
    variables: &BTreeMap<String, String>,
) -> Option<(String, &'static str)> {
    let json = serde_json::to_string(variables).ok()?;
    Some(match language {
        "python" => (
            format!(
                "(lambda e, n: (setattr(e, '_sandstorm_before', {{k: e.get(k) for k in n}}), e.update(n)))\
                 (__import__('os').environ, {json})[1]"
            ),
            "(lambda e: ([e.pop(k, None) if v is None else e.__setitem__(k, v) \
             for k, v in e._sandstorm_before.items()], None)[1])(__import__('os').environ)",
        ),
        "javascript" | "typescript" => (
            format!(
                "void ((e, n) => {{ globalThis[Symbol.for('sandstorm.before')] = \
                 Object.fromEntries(Object.keys(n).map((k) => [k, e[k]])); Object.assign(e, n); }})\
                 (process.env, {json})"
            ),
            "void ((e) => { for (const [k, v] of Object.entries(globalThis[Symbol.for('sandstorm.before')])) \
             { if (v === undefined) delete e[k]; else e[k] = v; } })(process.env)",
        ),
        "bash" => (bash(variables), BASH_RESTORING),
        "r" => (r(variables)?, R_RESTORING),
        "java" => (java(variables)?, JAVA_RESTORING),
        _ => return None,
    })
}

const BASH_RESTORING: &str = "for __sandstorm_name in \"${__sandstorm_names[@]}\"; do \
     if [[ -v __sandstorm_before[$__sandstorm_name] ]]; \
     then export \"$__sandstorm_name=${__sandstorm_before[$__sandstorm_name]}\"; \
     else unset \"$__sandstorm_name\"; fi; done; \
     unset __sandstorm_name __sandstorm_names __sandstorm_before; true";

fn bash(variables: &BTreeMap<String, String>) -> String {
    let names: Vec<&str> = variables.keys().map(String::as_str).collect();
    let mut code = format!("__sandstorm_names=({}); declare -gA __sandstorm_before=(); ", names.join(" "));
    for (name, value) in variables {
        let value = value.replace('\'', r"'\''");
        code.push_str(&format!(
            "[[ ! -v {name} ]] || __sandstorm_before[{name}]=${name}; export {name}='{value}'; "
        ));
    }
    code + "true"
}

const R_RESTORING: &str = "local({ before <- getOption('sandstorm.before'); \
     Sys.unsetenv(names(before)[is.na(before)]); before <- before[!is.na(before)]; \
     if (length(before)) do.call(Sys.setenv, as.list(before)); \
     options(sandstorm.before = NULL); invisible() })";

fn r(variables: &BTreeMap<String, String>) -> Option<String> {
    let names = literals(variables.keys())?.join(", ");
    let pairs = pairs(variables)?.map(|(name, value)| format!("{name} = {value}"));
    let pairs: Vec<String> = pairs.collect();
    Some(format!(
        "local({{ options(sandstorm.before = Sys.getenv(c({names}), NA, names = TRUE)); \
         Sys.setenv({}); invisible() }})",
        pairs.join(", ")
    ))
}

const JAVA_RESTORING: &str = "{ for (String name : System.clearProperty(\"sandstorm.names\").split(\",\")) { \
     String before = System.clearProperty(\"sandstorm.before.\" + name); \
     if (before == null) System.clearProperty(name); else System.setProperty(name, before); } }";

/// Java's own variables cannot change, so they are properties.
fn java(variables: &BTreeMap<String, String>) -> Option<String> {
    let names: Vec<&str> = variables.keys().map(String::as_str).collect();
    let texts: Vec<String> = pairs(variables)?.map(|(name, value)| format!("{name}, {value}")).collect();
    Some(format!(
        "{{ String[] texts = {{{}}}; for (int at = 0; at < texts.length; at += 2) {{ \
         String before = System.getProperty(texts[at]); \
         if (before != null) System.setProperty(\"sandstorm.before.\" + texts[at], before); \
         System.setProperty(texts[at], texts[at + 1]); }} \
         System.setProperty(\"sandstorm.names\", \"{}\"); }}",
        texts.join(", "),
        names.join(",")
    ))
}

fn literals<'a>(texts: impl Iterator<Item = &'a String>) -> Option<Vec<String>> {
    texts.map(|text| serde_json::to_string(text).ok()).collect()
}

fn pairs(variables: &BTreeMap<String, String>) -> Option<impl Iterator<Item = (String, String)>> {
    Some(literals(variables.keys())?.into_iter().zip(literals(variables.values())?))
}

/// The turn in a context, with what is to be put back when it is over, however it ends.
pub(super) struct Held {
    pub(super) turn: Option<Turn>,
    /// The code that puts it back comes last.
    pub(super) restore: Option<(Dialect, Guest, ContextId, &'static str)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some((dialect, guest, context, restoring)) = self.restore.take() else { return };
        let turn = self.turn.take();
        dialect.clone().tasks.finish("put variables back", async move {
            let cell = dialect.cell(context, restoring.to_owned());
            if let Err(error) = dialect.control.exec_to_end(&guest.caller, guest.sandbox, cell).await {
                tracing::debug!(%error, "variables of an execution could not be put back");
            }
            drop(turn);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("A".to_owned(), value.to_owned()), ("B".to_owned(), "b".to_owned())])
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        let all = variables("\"'\\\n${x}`\u{2028}");
        for language in ["python", "javascript", "typescript", "r", "java"] {
            let (code, _) = setting(language, &all).unwrap();
            assert!(code.contains(r#""\"'\\\n${x}`"#), "{code}");
            assert!(!code.contains('\n'), "{code}");
        }
        assert!(setting("ruby", &all).is_none());
    }

    #[test]
    fn bash_takes_them_as_they_are() {
        let (code, _) = setting("bash", &variables("it's $x \"y\"\n\\")).unwrap();
        assert!(code.contains("export A='it'\\''s $x \"y\"\n\\'; "), "{code}");
        assert!(code.starts_with("__sandstorm_names=(A B); "), "{code}");
    }
}
