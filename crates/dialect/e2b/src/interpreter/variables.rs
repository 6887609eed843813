//! Variables for one execution: set before it in the living interpreter, and as they were after it.

use std::collections::BTreeMap;

use sandstorm_types::ContextId;

use super::defaults::Turn;
use crate::door::Guest;
use crate::state::Dialect;

/// Code that sets variables and remembers what was there. The names are checked; texts of JSON are texts of both
/// languages.
pub(super) fn setting(language: &str, variables: &BTreeMap<String, String>) -> Option<String> {
    let json = serde_json::to_string(variables).ok()?;
    match language {
        "python" => Some(format!(
            "(lambda e, n: (setattr(e, '_sandstorm_before', {{k: e.get(k) for k in n}}), e.update(n)))\
             (__import__('os').environ, {json})[1]"
        )),
        "javascript" => Some(format!(
            "void ((e, n) => {{ globalThis[Symbol.for('sandstorm.before')] = \
             Object.fromEntries(Object.keys(n).map((k) => [k, e[k]])); Object.assign(e, n); }})(process.env, {json})"
        )),
        _ => None,
    }
}

fn restoring(language: &str) -> &'static str {
    match language {
        "python" => {
            "(lambda e: ([e.pop(k, None) if v is None else e.__setitem__(k, v) \
             for k, v in e._sandstorm_before.items()], None)[1])(__import__('os').environ)"
        }
        _ => {
            "void ((e) => { for (const [k, v] of Object.entries(globalThis[Symbol.for('sandstorm.before')])) \
             { if (v === undefined) delete e[k]; else e[k] = v; } })(process.env)"
        }
    }
}

/// The turn in a context, with what is to be put back when it is over, however it ends.
pub(super) struct Held {
    pub(super) turn: Option<Turn>,
    pub(super) restore: Option<(Dialect, Guest, ContextId, &'static str)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some((dialect, guest, context, language)) = self.restore.take() else { return };
        let turn = self.turn.take();
        dialect.clone().tasks.finish("put variables back", async move {
            let cell = dialect.cell(context, restoring(language).to_owned());
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

    #[test]
    fn values_cannot_leave_their_quotes() {
        let variables = BTreeMap::from([("A".to_owned(), "\"'\\\n${x}`\u{2028}".to_owned())]);
        for language in ["python", "javascript"] {
            let code = setting(language, &variables).unwrap();
            assert!(code.contains(r#"{"A":"\"'\\\n${x}`"#), "{code}");
            assert!(!code.contains('\n'), "{code}");
        }
        assert!(setting("bash", &variables).is_none());
    }
}
