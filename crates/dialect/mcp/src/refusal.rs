//! Why a tool did not do what it was asked, in words that tell a model what to do next.

use rmcp::model::{CallToolResult, ContentBlock};
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;

use crate::text::plain;

#[derive(Debug)]
pub(crate) struct Refusal {
    code: &'static str,
    message: String,
    next: String,
}

impl Refusal {
    /// An argument that cannot be meant.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self {
            code: ErrorKind::InvalidRequest.code(),
            message: message.into(),
            next: "Correct the argument and call the tool again.".to_owned(),
        }
    }

    pub(crate) fn with_next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// For the model, which reads it and goes on.
    pub(crate) fn into_result(self) -> CallToolResult {
        let text = format!("{}: {}\n\n{}", self.code, plain(&self.message), self.next);
        CallToolResult::error(vec![ContentBlock::text(text)])
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let mut message = error.message().to_owned();
        for (key, value) in error.context() {
            message.push_str(&format!(" ({key}: {value})"));
        }
        for unmet in error.reasons() {
            message.push_str(&format!(
                "; {}: wanted {}, offered {}: {}",
                unmet.feature, unmet.wanted, unmet.offered, unmet.why
            ));
        }
        Self { code: error.kind().code(), message, next: next(&error) }
    }
}

fn next(error: &Error) -> String {
    let soon = match error.retry_after() {
        Some(span) => format!("Try again in {} s.", span.as_secs().max(1)),
        None => "Try again a little later.".to_owned(),
    };
    match error.kind() {
        ErrorKind::InvalidRequest => "Correct the arguments and call the tool again.".to_owned(),
        ErrorKind::Unauthenticated | ErrorKind::Forbidden => {
            "The key that this client uses does not allow this. Tell the user; trying again does not help.".to_owned()
        }
        ErrorKind::NotFound => {
            "It may have ended. sandbox_list shows what there is; without a handle, run_code makes what it needs.".to_owned()
        }
        ErrorKind::Conflict => "Look at its present state with sandbox_get before trying again.".to_owned(),
        ErrorKind::Quota => format!("A limit of this account is reached. End what is not needed with sandbox_delete. {soon}"),
        ErrorKind::Capacity => format!("The server is full. {soon}"),
        ErrorKind::Timeout | ErrorKind::Provider => soon,
        ErrorKind::FileSystem => "Look at the path with file_list, or at the space that is left.".to_owned(),
        ErrorKind::Cancelled => "It was cancelled. Call the tool again if it is still wanted.".to_owned(),
        _ => "Tell the user: this is a fault of the server, and its log tells more.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do_next() {
        for kind in ErrorKind::ALL {
            let refusal = Refusal::from(Error::new(kind, "no \x1b[1mway\x1b[0m").with("sandbox", "sbx_x"));
            assert!(!refusal.next.is_empty());
            let result = refusal.into_result();
            assert_eq!(result.is_error, Some(true));
            let text = &result.content[0].as_text().unwrap().text;
            assert!(text.starts_with(&format!("{}: no way (sandbox: sbx_x)\n\n", kind.code())), "{text}");
        }
    }
}
