//! Tokens that open one sandbox, for dialects whose clients have one beside the key.
//!
//! A token is a keyed hash of the sandbox's id and of what it is for, so that nothing is stored and every server with the
//! same state directory knows it. It says nothing of whether the sandbox lives: whoever has the wrong one for a sandbox
//! that lives learns as little as with one for a sandbox that never was.

use data_encoding::HEXLOWER;
use ring::hmac;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, SandboxId, State};
use subtle::ConstantTimeEq;

use super::failure::not_found;
use super::living::Living;
use super::{Caller, Control, Pepper, Scope, Scopes};

/// Bytes of the hash that are kept: as hard to guess as an id.
const KEPT: usize = 20;

impl Control {
    /// The token of a sandbox for one purpose. Two purposes have two tokens.
    pub fn sandbox_token(&self, sandbox: SandboxId, purpose: &str) -> String {
        token(&self.0.settings.pepper, sandbox, purpose)
    }

    /// Who presents a sandbox's token: its tenant, with the scopes of the sandbox and its files. A wrong token is
    /// `Unauthenticated`, whether the sandbox lives or not; with the right one a sandbox that ended is `NotFound`.
    pub fn authenticate_sandbox(&self, sandbox: SandboxId, purpose: &str, presented: &str) -> Result<Caller> {
        let expected = self.sandbox_token(sandbox, purpose);
        if !bool::from(expected.as_bytes().ct_eq(presented.as_bytes())) {
            metrics::counter!("sandstorm_authentication_failures_total").increment(1);
            return Err(Error::new(ErrorKind::Unauthenticated, "the token is missing or not valid"));
        }
        let living = self.0.sandboxes.of_any_tenant(sandbox).filter(|living| lives(living));
        living.map(|living| bearer(&living)).ok_or_else(|| not_found("sandbox"))
    }

    /// The living sandbox for whose token `matches` holds, for requests that name none. It is asked about each of them,
    /// also after it held for one, so that time tells nothing of which.
    pub fn sandbox_by_token(
        &self,
        purpose: &str,
        mut matches: impl FnMut(&str) -> bool,
    ) -> Option<(SandboxId, Caller)> {
        let mut found = None;
        for living in self.0.sandboxes.which(lives) {
            if matches(&self.sandbox_token(living.id, purpose)) {
                found = Some((living.id, bearer(&living)));
            }
        }
        found
    }
}

fn lives(living: &Living) -> bool {
    let state = &living.row().state;
    !state.is_final() && *state != State::Terminating
}

fn bearer(living: &Living) -> Caller {
    Caller {
        tenant: living.tenant,
        key: format!("<token of {}>", living.id),
        scopes: [Scope::Sandbox, Scope::Files].into_iter().collect::<Scopes>(),
        request_id: String::new(),
        traceparent: None,
        sandbox: Some(living.id),
    }
}

fn token(pepper: &Pepper, sandbox: SandboxId, purpose: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &pepper.0);
    let mut mac = hmac::Context::with_key(&key);
    mac.update(b"sandstorm sandbox token\0");
    mac.update(&sandbox.bits().to_be_bytes());
    mac.update(purpose.as_bytes());
    HEXLOWER.encode(&mac.sign().as_ref()[..KEPT])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_one_sandbox_one_purpose_and_one_server() {
        let (pepper, one, other) = (Pepper([7; 32]), SandboxId::from_bits(1), SandboxId::from_bits(2));
        let good = token(&pepper, one, "envd");
        assert_eq!(good.len(), 2 * KEPT);
        assert_eq!(good, token(&pepper, one, "envd"));
        for wrong in [
            token(&pepper, other, "envd"),
            token(&pepper, one, "traffic"),
            token(&Pepper([8; 32]), one, "envd"),
        ] {
            assert_ne!(good, wrong);
        }
    }
}
