//! Keys, tenants and the audit log: what operators see.

use std::time::Duration;

use sandstorm_control::server::{
    AuditRow, Decision, KeyForm, KeyView, NewKey, NewTenant, Quota, Scope, Scopes, TenantView,
};
use sandstorm_types::{TenantId, Timestamp, duration};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::shapes::Span;
use crate::json::Wire;
use crate::problem::{ApiError, ApiResult};

const MAX_NAME: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScopeName {
    Run,
    Sandbox,
    Files,
    Admin,
}

impl From<Scope> for ScopeName {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Run => Self::Run,
            Scope::Sandbox => Self::Sandbox,
            Scope::Files => Self::Files,
            Scope::Admin => Self::Admin,
        }
    }
}

impl From<ScopeName> for Scope {
    fn from(scope: ScopeName) -> Self {
        match scope {
            ScopeName::Run => Self::Run,
            ScopeName::Sandbox => Self::Sandbox,
            ScopeName::Files => Self::Files,
            ScopeName::Admin => Self::Admin,
        }
    }
}

/// A key to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateKey {
    #[schema(value_type = Option<String>)]
    #[serde(default)]
    tenant: Option<TenantId>,
    #[schema(max_length = 200)]
    name: String,
    #[schema(min_items = 1, max_items = 4)]
    scopes: Vec<ScopeName>,
    #[serde(default)]
    form: FormName,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FormName {
    #[default]
    Native,
    E2b,
}

impl Wire for CreateKey {}

impl CreateKey {
    pub(crate) fn into_new(self) -> ApiResult<NewKey> {
        if self.scopes.is_empty() {
            return Err(ApiError::field("scopes", "a key without scopes can do nothing"));
        }
        Ok(NewKey {
            tenant: self.tenant.unwrap_or(TenantId::LOCAL),
            name: checked_name(self.name)?,
            scopes: Scopes(self.scopes.into_iter().map(Scope::from).collect()),
            form: match self.form {
                FormName::Native => KeyForm::Native,
                FormName::E2b => KeyForm::E2b,
            },
            expires_at: self.expires_at,
        })
    }
}

fn checked_name(name: String) -> ApiResult<String> {
    if name.len() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(ApiError::field("name", "must be at most 200 bytes without control characters"));
    }
    Ok(name)
}

/// How long the old secret stays good.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateKey {
    #[serde(default, with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    pub(crate) overlap: Option<Duration>,
}

impl Wire for RotateKey {}

/// A key without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Key)]
pub(crate) struct KeyBody {
    id: String,
    #[schema(value_type = String)]
    tenant: TenantId,
    name: String,
    scopes: Vec<ScopeName>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
}

impl From<KeyView> for KeyBody {
    fn from(view: KeyView) -> Self {
        Self {
            id: view.id,
            tenant: view.tenant,
            name: view.name,
            scopes: view.scopes.0.into_iter().map(ScopeName::from).collect(),
            created_at: view.created_at,
            expires_at: view.expires_at,
            revoked_at: view.revoked_at,
            last_used_at: view.last_used_at,
        }
    }
}

/// A key with its secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CreatedKey {
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) about: KeyBody,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyList {
    pub(crate) items: Vec<KeyBody>,
}

/// What one tenant may use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Quota)]
pub(crate) struct QuotaBody {
    sandboxes: u32,
    cpu_milli: u64,
    memory_bytes: u64,
    /// `null`: as many as the machine takes.
    #[serde(deserialize_with = "stated")]
    #[schema(required = true)]
    runs_per_minute: Option<u32>,
    /// `null`: as many as come.
    #[serde(deserialize_with = "stated")]
    #[schema(required = true)]
    requests_per_second: Option<u32>,
    open_streams: u32,
}

/// A number or `null`, but never left out: to forget a bound is not to lift it.
fn stated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    Option::deserialize(deserializer)
}

impl From<Quota> for QuotaBody {
    fn from(quota: Quota) -> Self {
        Self {
            sandboxes: quota.sandboxes,
            cpu_milli: quota.cpu_milli,
            memory_bytes: quota.memory_bytes,
            runs_per_minute: quota.runs_per_minute,
            requests_per_second: quota.requests_per_second,
            open_streams: quota.open_streams,
        }
    }
}

impl From<QuotaBody> for Quota {
    fn from(quota: QuotaBody) -> Self {
        Self {
            sandboxes: quota.sandboxes,
            cpu_milli: quota.cpu_milli,
            memory_bytes: quota.memory_bytes,
            runs_per_minute: quota.runs_per_minute,
            requests_per_second: quota.requests_per_second,
            open_streams: quota.open_streams,
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateTenant {
    #[schema(max_length = 200)]
    name: String,
    #[serde(default)]
    quota: Option<QuotaBody>,
}

impl Wire for CreateTenant {}

impl CreateTenant {
    pub(crate) fn into_new(self) -> ApiResult<NewTenant> {
        Ok(NewTenant { name: checked_name(self.name)?, quota: self.quota.map(Quota::from) })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantBody {
    #[schema(value_type = String)]
    id: TenantId,
    name: String,
    quota: QuotaBody,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<TenantView> for TenantBody {
    fn from(view: TenantView) -> Self {
        Self { id: view.id, name: view.name, quota: view.quota.into(), created_at: view.created_at }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantList {
    pub(crate) items: Vec<TenantBody>,
}

/// One act of a principal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditRecord)]
pub(crate) struct AuditBody {
    seq: u64,
    node: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    #[schema(value_type = String)]
    tenant: TenantId,
    /// The public id of a key, or a name in angle brackets.
    principal: String,
    action: String,
    object: String,
    /// `allowed` or `denied`.
    decision: &'static str,
    request_id: String,
    detail: Option<Value>,
    prev_hash: String,
    hash: String,
}

/// Acts, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditList {
    pub(crate) items: Vec<AuditBody>,
}

impl From<AuditRow> for AuditBody {
    fn from(row: AuditRow) -> Self {
        let audit = row.audit;
        Self {
            seq: row.seq,
            node: row.node,
            at: row.at,
            tenant: audit.tenant,
            principal: audit.principal,
            action: audit.action,
            object: audit.object,
            decision: match audit.decision {
                Decision::Allowed => "allowed",
                Decision::Denied => "denied",
            },
            request_id: audit.request_id,
            detail: audit.detail,
            prev_hash: row.prev_hash,
            hash: row.hash,
        }
    }
}
