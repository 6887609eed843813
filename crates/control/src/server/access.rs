//! Who calls, and what they may.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sandstorm_provider::{Error, OpContext, Result, TraceId};
use sandstorm_store::{Audit, AuditRow, Decision, TenantRow};
use sandstorm_types::{ErrorKind, SandboxId, TenantId, Timestamp, User};

use super::authentication::DEVELOPER;
use super::failure::{invalid, not_found, stored};
use super::keys::Actor;
use super::quotas::StreamGuard;
use super::{Control, Quota};

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// One-shot runs.
    Run,
    /// Sandboxes, execs, contexts, terminals, ports.
    Sandbox,
    /// Files of sandboxes.
    Files,
    /// Keys, tenants, audit; everything of every tenant that an operator needs. Implies nothing else.
    Admin,
}

/// A set of scopes; printed and read as `run,sandbox,files`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scopes(pub std::collections::BTreeSet<Scope>);

/// Who calls. Made by [`Control::authenticate`], the functions beside [`Control::authenticate_sandbox`], and
/// [`Control::developer`] alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Caller {
    pub(super) tenant: TenantId,
    pub(super) key: String,
    pub(super) scopes: Scopes,
    /// For audit and logs.
    pub(super) request_id: String,
    /// Where the request stands in its trace, as W3C writes it.
    pub(super) traceparent: Option<String>,
    /// What the caller presented instead of a key opens this and nothing else.
    pub(super) bound: Option<Bound>,
    /// Whom it works on the files of a sandbox as.
    pub(super) user: User,
}

/// What a caller does inside a sandbox, as far as tokens tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Look at the sandbox itself.
    Look,
    /// Resume it if it is paused.
    Wake,
    /// Start programs, give them input, run code in contexts.
    Run,
    /// Read and change its files.
    Files,
    /// Connect to its ports.
    Connect,
}

/// The bounds of a caller without a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) sandbox: SandboxId,
    pub(super) verbs: &'static [Verb],
    /// The end of the token.
    pub(super) until: Option<Timestamp>,
    /// Nothing was presented: only public ports are open.
    pub(super) visitor: bool,
}

impl Caller {
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The public id of the key, never the key.
    pub fn key_id(&self) -> &str {
        &self.key
    }

    /// `Forbidden` unless the key has the scope. This is for what concerns the whole tenant, so a token for one sandbox is
    /// refused here: every operation is closed to tokens unless it asks [`Self::require_inside`] instead.
    pub fn require(&self, scope: Scope) -> Result<()> {
        self.require_key()?;
        self.has(scope)
    }

    /// For what any key may do and no token for one sandbox.
    pub(super) fn require_key(&self) -> Result<()> {
        match self.bound {
            Some(_) => Err(Error::new(ErrorKind::Forbidden, "a token for one sandbox does not open this")),
            None => Ok(()),
        }
    }

    /// For what happens inside one sandbox: `Forbidden` unless the key has the scope, and a token is for this verb;
    /// `NotFound` when a token is for another sandbox.
    pub(super) fn require_inside(&self, sandbox: SandboxId, verb: Verb) -> Result<()> {
        match self.bound {
            Some(bound) if bound.sandbox != sandbox => return Err(not_found("sandbox")),
            Some(bound) if !bound.verbs.contains(&verb) => {
                return Err(Error::new(ErrorKind::Forbidden, "the token does not open this"));
            }
            _ => {}
        }
        self.has(match verb {
            Verb::Files => Scope::Files,
            Verb::Look | Verb::Wake | Verb::Run | Verb::Connect => Scope::Sandbox,
        })
    }

    fn has(&self, scope: Scope) -> Result<()> {
        match self.scopes.0.contains(&scope) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Forbidden, "the key does not have the scope that this needs")
                .with("scope", scope.as_str())),
        }
    }

    pub fn with_request(mut self, request_id: &str, traceparent: Option<&str>) -> Self {
        request_id.clone_into(&mut self.request_id);
        self.traceparent = traceparent.map(str::to_owned);
        self
    }

    /// The same caller, working on the files of a sandbox as this user of the sandbox. Programs have a user of their own.
    pub fn acting_as(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    /// Whom it works on the files of a sandbox as.
    pub fn user(&self) -> User {
        self.user
    }

    /// The context of an operation for this caller.
    pub(super) fn operation(&self) -> OpContext {
        let id = self.traceparent.as_deref().and_then(|here| here.split('-').nth(1));
        let id = id.and_then(|id| u128::from_str_radix(id, 16).ok()).unwrap_or(0);
        OpContext::new(self.tenant).with_trace(TraceId(id)).acting_as(self.user)
    }

    /// The record of something that this caller does.
    pub(super) fn audit(&self, action: &str, object: impl fmt::Display) -> Audit {
        Audit {
            tenant: self.tenant,
            principal: self.principal(),
            action: action.to_owned(),
            object: object.to_string(),
            decision: Decision::Allowed,
            request_id: self.request_id.clone(),
            detail: None,
        }
    }

    fn principal(&self) -> String {
        match self.bound {
            Some(bound) if !bound.visitor => format!("{} by a token of {}", self.key, bound.sandbox),
            _ => self.key.clone(),
        }
    }

    fn actor(&self) -> Actor {
        Actor { principal: self.key.clone(), request_id: self.request_id.clone() }
    }
}

impl Scope {
    pub const ALL: [Self; 4] = [Self::Run, Self::Sandbox, Self::Files, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Sandbox => "sandbox",
            Self::Files => "files",
            Self::Admin => "admin",
        }
    }
}

impl Scopes {
    pub fn all() -> Self {
        Self(Scope::ALL.into())
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().collect())
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, scope) in self.0.iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { "," }, scope.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for Scopes {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let scope = |name: &str| {
            Scope::ALL.into_iter().find(|scope| scope.as_str() == name.trim()).ok_or_else(|| {
                let name: String = name.chars().take(40).collect();
                invalid("scopes are run, sandbox, files and admin, with commas between them")
                    .with("found", name)
            })
        };
        text.split(',').filter(|name| !name.trim().is_empty()).map(scope).collect()
    }
}

impl KeyForm {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::E2b => "e2b",
        }
    }
}

impl FromStr for KeyForm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "native" => Ok(Self::Native),
            "e2b" => Ok(Self::E2b),
            _ => Err(invalid("the form of a key is native or e2b")),
        }
    }
}

impl KeyView {
    /// Whether the key opens anything at this moment.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("tenant", &self.tenant).field("key", &self.key).finish_non_exhaustive()
    }
}

/// How a key looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// `ss_<id>_<43 base64url>`
    #[default]
    Native,
    /// `e2b_` and 40 hexadecimal digits.
    E2b,
}

/// A key to make.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub tenant: TenantId,
    pub name: String,
    pub scopes: Scopes,
    pub form: KeyForm,
    pub expires_at: Option<Timestamp>,
}

/// A key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyView {
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    pub scopes: Scopes,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NewTenant {
    pub name: String,
    pub quota: Option<Quota>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    pub id: TenantId,
    pub name: String,
    pub quota: Quota,
    pub created_at: Timestamp,
}

impl Control {
    /// Counts one request against the tenant's rate, or a visitor's against the same rate for all visitors of the tenant.
    /// `Quota` with `retry_after` when it is too many.
    pub fn count_request(&self, caller: &Caller) -> Result<()> {
        let tenant = self.0.quotas.of(caller.tenant);
        match caller.bound.is_some_and(|bound| bound.visitor) {
            true => tenant.count_visit(),
            false => tenant.count_request(),
        }
    }

    /// Reserves one of the tenant's open streams until the guard is dropped.
    pub fn open_stream(&self, caller: &Caller) -> Result<StreamGuard> {
        self.0.quotas.of(caller.tenant).open_stream()
    }

    // Operators: all need `Admin`.

    /// Makes a key; the secret is returned once and never stored.
    pub async fn create_key(&self, caller: &Caller, key: NewKey) -> Result<(KeyView, String)> {
        caller.require(Scope::Admin)?;
        self.0.keys.create(&caller.actor(), key).await
    }

    pub async fn keys(&self, caller: &Caller, tenant: Option<TenantId>) -> Result<Vec<KeyView>> {
        caller.require(Scope::Admin)?;
        self.0.keys.list(tenant).await
    }

    pub async fn revoke_key(&self, caller: &Caller, id: &str) -> Result<KeyView> {
        caller.require(Scope::Admin)?;
        let revoked = self.0.keys.revoke(&caller.actor(), id).await?;
        self.0.known_keys.forget(id);
        Ok(revoked)
    }

    /// A new secret for the same name and scopes; the old one stays good for `overlap`.
    pub async fn rotate_key(
        &self,
        caller: &Caller,
        id: &str,
        overlap: Duration,
    ) -> Result<(KeyView, String)> {
        caller.require(Scope::Admin)?;
        let made = self.0.keys.rotate(&caller.actor(), id, overlap).await?;
        self.0.known_keys.forget(id);
        Ok(made)
    }

    pub async fn create_tenant(&self, caller: &Caller, tenant: NewTenant) -> Result<TenantView> {
        caller.require(Scope::Admin)?;
        let row = self.0.keys.create_tenant(&caller.actor(), tenant).await?;
        Ok(self.tenant_view(row))
    }

    pub async fn tenants(&self, caller: &Caller) -> Result<Vec<TenantView>> {
        caller.require(Scope::Admin)?;
        let rows = stored(self.0.store.tenants().await)?;
        Ok(rows.into_iter().map(|row| self.tenant_view(row)).collect())
    }

    /// Records of acts, oldest first, after number `after`.
    pub async fn audit(
        &self,
        caller: &Caller,
        tenant: Option<TenantId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<AuditRow>> {
        caller.require(Scope::Admin)?;
        stored(self.0.store.audit(tenant, after, limit.clamp(1, 1000)).await)
    }

    fn tenant_view(&self, row: TenantRow) -> TenantView {
        let quota = own_quota(&row).unwrap_or(self.0.settings.quota_of(row.id));
        TenantView { id: row.id, name: row.name, quota, created_at: row.created_at }
    }

    /// Who calls a server that was started with `--dev-no-auth`: the local tenant with every scope.
    pub fn developer(&self) -> Caller {
        Caller {
            tenant: TenantId::LOCAL,
            key: DEVELOPER.to_owned(),
            scopes: Scopes::all(),
            request_id: String::new(),
            traceparent: None,
            bound: None,
            user: User::default(),
        }
    }
}

/// What a tenant's row says of its quota. One that cannot be read is said so and the usual one holds.
pub(super) fn own_quota(row: &TenantRow) -> Option<Quota> {
    let quota = row.quota.clone()?;
    serde_json::from_value(quota)
        .inspect_err(
            |error| tracing::error!(tenant = %row.id, %error, "the quota of a tenant cannot be read"),
        )
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_printed() {
        assert_eq!(Scopes::all().to_string(), "run,sandbox,files,admin");
        assert_eq!("files, run".parse::<Scopes>().unwrap().to_string(), "run,files");
        assert!("".parse::<Scopes>().unwrap().0.is_empty());
        assert!("run,root".parse::<Scopes>().is_err());
    }
}
