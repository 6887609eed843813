//! Tokens that open one sandbox, for dialects whose clients have one beside the key; and visitors, who have none.
//!
//! A token names its sandbox, the key that it was given to and the day of that, and carries a keyed hash of them and of
//! what it is for. So nothing is stored, every server with the same state directory knows it, and it opens nothing any
//! more when its key is revoked or its time is over. What its bearer may do is decided by `Caller::require_inside`.

use std::ops::RangeInclusive;
use std::time::Duration;

use data_encoding::HEXLOWER;
use ring::hmac;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, SandboxId, State, TenantId, Timestamp, User};
use subtle::ConstantTimeEq;

use super::access::Bound;
use super::authentication::DEVELOPER;
use super::failure::not_found;
use super::living::Living;
use super::{Caller, Control, Pepper, Scope, Scopes, Verb};

/// Bytes of the hash that are kept: as hard to guess as an id.
const KEPT: usize = 20;
const DAY: i64 = 86_400_000;
/// The developer's name in tokens: shorter than the id of any key.
const DEVELOPER_NAME: &str = "developer";
/// Nothing longer is a token.
const LONGEST: usize = 160;
/// Candidates for a signature that are tried before other work gets its turn.
const AT_ONCE: usize = 256;
/// How long a signature that names no sandbox waits for its turn.
const TURN: Duration = Duration::from_secs(2);
/// Who brings neither key nor token.
const VISITOR: &str = "<visitor>";

/// What a token is for. Two kinds of one sandbox are two tokens.
#[derive(Debug, Clone, Copy)]
pub struct TokenKind {
    pub purpose: &'static str,
    /// What its bearer may do inside the sandbox, as far as the scopes of its key go.
    pub verbs: &'static [Verb],
}

/// What a token says in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Issued<'a> {
    sandbox: SandboxId,
    key: &'a str,
    day: i64,
}

impl Control {
    /// The caller's token of a sandbox. It is good for as long as a sandbox may be asked to live, and up to a day more.
    pub fn sandbox_token(&self, caller: &Caller, sandbox: SandboxId, kind: TokenKind) -> Result<String> {
        caller.require_key()?;
        let key = if caller.key == DEVELOPER { DEVELOPER_NAME } else { &caller.key };
        Ok(token(&self.0.settings.pepper, Issued { sandbox, key, day: today() }, kind.purpose))
    }

    /// Who presents a token of this sandbox. A wrong one is `Unauthenticated`, whether the sandbox lives or not, and so is
    /// one whose key or time is over; with the right one a sandbox that ended is `NotFound`.
    pub async fn authenticate_sandbox(
        &self,
        sandbox: SandboxId,
        kind: TokenKind,
        presented: &str,
    ) -> Result<Caller> {
        match Issued::read(presented).filter(|issued| issued.sandbox == sandbox) {
            Some(issued) => self.check_token(issued, kind, presented).await,
            None => Err(refused()),
        }
    }

    /// The same for requests that name no sandbox.
    pub async fn authenticate_token(&self, kind: TokenKind, presented: &str) -> Result<(SandboxId, Caller)> {
        let issued = Issued::read(presented).ok_or_else(refused)?;
        Ok((issued.sandbox, self.check_token(issued, kind, presented).await?))
    }

    /// Who signed something with a token, which `matches` tells of each that could be meant. `sandbox` is the one that the
    /// request names; without it all that live could be meant, and such requests take turns.
    pub async fn authenticate_signature(
        &self,
        sandbox: Option<SandboxId>,
        kind: TokenKind,
        mut matches: impl FnMut(&str) -> bool,
    ) -> Result<(SandboxId, Caller)> {
        let _turn = match sandbox {
            Some(_) => None,
            None => Some(tokio::time::timeout(TURN, self.0.known_keys.searching.lock()).await.map_err(busy)?),
        };
        let (today, good_for) = (today(), self.0.token_days());
        let mut meant: Vec<(SandboxId, TenantId, RangeInclusive<i64>)> = match sandbox {
            Some(id) => {
                let living = self.0.sandboxes.of_any_tenant(id).filter(|living| lives(living));
                // For one that is not there as much is tried as for one that is.
                vec![(id, living.map_or(TenantId::LOCAL, |living| living.tenant), today - good_for..=today)]
            }
            None => {
                let days = |living: &Living| days_of_tokens(living.row().created_at, today, good_for);
                let living = self.0.sandboxes.which(lives);
                living.iter().map(|living| (living.id, living.tenant, days(living))).collect()
            }
        };
        // Each tenant's keys are looked up once.
        meant.sort_unstable_by_key(|(_, tenant, _)| *tenant);
        let mut keys: Option<(TenantId, Vec<String>)> = None;
        let (mut found, mut tried) = (None, 0);
        for (id, tenant, days) in meant {
            if keys.as_ref().is_none_or(|(of, _)| *of != tenant) {
                keys = Some((tenant, self.0.names_in_tokens(tenant).await?));
            }
            for key in keys.iter().flat_map(|(_, keys)| keys) {
                for day in days.clone() {
                    let issued = Issued { sandbox: id, key, day };
                    // Also after one was found: time tells nothing of which it was.
                    if matches(&token(&self.0.settings.pepper, issued, kind.purpose)) {
                        found = Some((id, key.clone(), day));
                    }
                    tried += 1;
                    if tried % AT_ONCE == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        let (id, key, day) = found.ok_or_else(refused)?;
        Ok((id, self.bearer(Issued { sandbox: id, key: &key, day }, kind).await?))
    }

    /// Somebody without key and token, at a sandbox whose owner opened its ports to everybody. `Forbidden` where the owner
    /// said no, `NotFound` where nothing was said.
    pub fn visitor(&self, sandbox: SandboxId) -> Result<Caller> {
        let living = self.0.sandboxes.of_any_tenant(sandbox).filter(|living| lives(living));
        let living = living.ok_or_else(|| not_found("sandbox"))?;
        match living.row().spec.labels.public_ports() {
            Some(true) => {}
            Some(false) => {
                return Err(Error::new(ErrorKind::Forbidden, "the ports of this sandbox are not public"));
            }
            None => return Err(not_found("sandbox")),
        }
        let verbs: &[Verb] = &[Verb::Look, Verb::Wake, Verb::Connect];
        Ok(Caller {
            tenant: living.tenant,
            key: VISITOR.to_owned(),
            scopes: Scopes([Scope::Sandbox].into()),
            request_id: String::new(),
            traceparent: None,
            bound: Some(Bound { sandbox, verbs, until: None, visitor: true }),
            user: User::default(),
        })
    }

    async fn check_token(&self, issued: Issued<'_>, kind: TokenKind, presented: &str) -> Result<Caller> {
        let expected = token(&self.0.settings.pepper, issued, kind.purpose);
        // A clock that was set back may make yesterday of the day on which it was made.
        let in_time = (today() - self.0.token_days()..=today() + 1).contains(&issued.day);
        if !bool::from(expected.as_bytes().ct_eq(presented.as_bytes())) || !in_time {
            return Err(refused());
        }
        self.bearer(issued, kind).await
    }

    /// The bearer of a token that is known to be right.
    async fn bearer(&self, issued: Issued<'_>, kind: TokenKind) -> Result<Caller> {
        let Issued { sandbox, key, day } = issued;
        let (tenant, key, scopes) = match key == DEVELOPER_NAME {
            true if self.0.settings.keyless => (TenantId::LOCAL, DEVELOPER.to_owned(), Scopes::all()),
            true => return Err(refused()),
            false => {
                let key = self.0.good_key(key).await?.ok_or_else(refused)?;
                (key.tenant, key.id, key.scopes)
            }
        };
        let living = self.0.sandboxes.get(tenant, sandbox).filter(|living| lives(living));
        living.ok_or_else(|| not_found("sandbox"))?;
        self.0.learn_quota(tenant).await?;
        let inside = |scope: &Scope| matches!(scope, Scope::Sandbox | Scope::Files);
        let until = Timestamp::from_millis((day + self.0.token_days() + 1) * DAY);
        Ok(Caller {
            tenant,
            key,
            scopes: Scopes(scopes.0.into_iter().filter(inside).collect()),
            request_id: String::new(),
            traceparent: None,
            bound: Some(Bound { sandbox, verbs: kind.verbs, until: Some(until), visitor: false }),
            user: User::default(),
        })
    }
}

impl super::Inner {
    /// How many days a token is good after the one on which it was made.
    fn token_days(&self) -> i64 {
        let longest = i64::try_from(self.settings.longest_lifetime.as_millis()).unwrap_or(i64::MAX);
        (longest / DAY + i64::from(longest % DAY > 0)).clamp(1, 366)
    }

    /// What good keys of a tenant are called in tokens.
    async fn names_in_tokens(&self, tenant: TenantId) -> Result<Vec<String>> {
        let mut names = self.good_keys(tenant).await?;
        if self.settings.keyless && tenant == TenantId::LOCAL {
            names.push(DEVELOPER_NAME.to_owned());
        }
        Ok(names)
    }

    /// Whether somebody without a key of their own may still be inside.
    pub(super) fn bounds_hold(&self, tenant: TenantId, bound: &Bound) -> bool {
        let living = self.sandboxes.get(tenant, bound.sandbox);
        let in_time = bound.until.is_none_or(|until| Timestamp::now() < until);
        in_time
            && living
                .is_some_and(|living| !bound.visitor || living.row().spec.labels.public_ports() == Some(true))
    }
}

fn refused() -> Error {
    metrics::counter!("sandstorm_authentication_failures_total").increment(1);
    Error::new(ErrorKind::Unauthenticated, "the token is missing or not valid")
}

fn busy(_: tokio::time::error::Elapsed) -> Error {
    Error::new(ErrorKind::Capacity, "too many signatures that name no sandbox are looked for")
        .with_retry_after(Duration::from_secs(1))
}

fn lives(living: &Living) -> bool {
    let state = &living.row().state;
    !state.is_final() && *state != State::Terminating
}

fn today() -> i64 {
    Timestamp::now().millis().div_euclid(DAY)
}

impl<'a> Issued<'a> {
    /// What a token says of itself, whether it is true or not.
    fn read(presented: &'a str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if presented.len() > LONGEST || !presented.bytes().all(plain) {
            return None;
        }
        let mut parts = presented.split('-');
        let sandbox = SandboxId::from_bare(parts.next()?).ok()?;
        let (key, day) = (parts.next()?, i64::from_str_radix(parts.next()?, 16).ok()?);
        parts.next().filter(|mac| mac.len() == 2 * KEPT)?;
        parts.next().is_none().then_some(Self { sandbox, key, day })
    }
}

/// The days on which tokens of a sandbox can have been made that are good today: before it was created there were none. A day
/// earlier, or all of today where that was later, for a clock that was set back since.
fn days_of_tokens(created: Timestamp, today: i64, good_for: i64) -> RangeInclusive<i64> {
    let created = created.millis().div_euclid(DAY);
    (created - 1).clamp(today - good_for, today)..=today
}

/// Whether this has the form of a token, of whatever sandbox and server.
pub(super) fn is_token(text: &str) -> bool {
    Issued::read(text).is_some()
}

fn token(pepper: &Pepper, issued: Issued<'_>, purpose: &str) -> String {
    let Issued { sandbox, key, day } = issued;
    let plain = format!("{}-{key}-{day:x}", sandbox.bare());
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &pepper.0));
    mac.update(b"sandstorm sandbox token\0");
    mac.update(plain.as_bytes());
    mac.update(b"\0");
    mac.update(purpose.as_bytes());
    format!("{plain}-{}", HEXLOWER.encode(&mac.sign().as_ref()[..KEPT]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_token_from_before_its_sandbox() {
        let days = |created: i64| days_of_tokens(Timestamp::from_millis(created * DAY + 7), 20_000, 30);
        assert_eq!(days(20_000), 19_999..=20_000);
        assert_eq!(days(19_990), 19_989..=20_000);
        assert_eq!(days(19_000), 19_970..=20_000, "it is over");
        assert_eq!(days(20_400), 20_000..=20_000, "the clock was set back");
    }

    #[test]
    fn a_token_is_for_one_sandbox_key_day_purpose_and_server() {
        let (pepper, sandbox) = (Pepper([7; 32]), SandboxId::from_bits(1));
        let issued = Issued { sandbox, key: "abcdefghijklmnop", day: 20_000 };
        let good = token(&pepper, issued, "envd");
        assert_eq!(Issued::read(&good), Some(issued));
        assert_eq!(good, token(&pepper, issued, "envd"));
        let mac = |token: &str| token.rsplit('-').next().unwrap().to_owned();
        for wrong in [
            token(&pepper, Issued { sandbox: SandboxId::from_bits(2), ..issued }, "envd"),
            token(&pepper, Issued { key: "bbcdefghijklmnop", ..issued }, "envd"),
            token(&pepper, Issued { day: 20_001, ..issued }, "envd"),
            token(&pepper, issued, "traffic"),
            token(&Pepper([8; 32]), issued, "envd"),
        ] {
            assert_ne!(mac(&good), mac(&wrong));
        }
        for odd in
            ["", "-", "x", &good[1..], &good[..good.len() - 1], &format!("{good}-"), &good.to_uppercase()]
        {
            assert_eq!(Issued::read(odd), None, "{odd}");
        }
    }
}
