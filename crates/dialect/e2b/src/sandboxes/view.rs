//! Sandboxes as E2B's clients see them.

use std::time::Duration;

use sandstorm_control::server::{Caller, SandboxView};
use sandstorm_types::{NetworkPolicy, OnEnd, Phase, SandboxId};
use serde_json::{Value, json};

use super::labels::{self, AUTO_RESUME, TEMPLATE};
use crate::door::{ENVD, TRAFFIC};
use crate::refusal::Refusal;
use crate::settings::BASE;
use crate::state::Dialect;

/// The version of envd whose behaviour this is. SDKs use nothing that came later: metadata of files came with 0.6.2.
pub(crate) const ENVD_VERSION: &str = "0.5.14";
/// Once the id of a machine; clients still want one.
const CLIENT: &str = "sandstorm";

pub(crate) fn is_paused(view: &SandboxView) -> bool {
    matches!(view.phase, Phase::Paused | Phase::Pausing)
}

impl Dialect {
    /// What a client needs to use a sandbox.
    pub(crate) fn access(&self, caller: &Caller, id: SandboxId, template: &str) -> Result<Value, Refusal> {
        Ok(json!({
            "templateID": template,
            "sandboxID": id.bare(),
            "clientID": CLIENT,
            "alias": template,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.control.sandbox_token(caller, id, ENVD)?,
            "trafficAccessToken": self.control.sandbox_token(caller, id, TRAFFIC)?,
            "domain": self.settings.domain,
        }))
    }

    pub(crate) fn access_to(&self, caller: &Caller, view: &SandboxView) -> Result<Value, Refusal> {
        self.access(caller, view.id, template_of(view))
    }
}

pub(crate) fn template_of(view: &SandboxView) -> &str {
    view.spec.labels.get(TEMPLATE).unwrap_or(BASE)
}

/// One row of a list.
pub(crate) fn listed(view: &SandboxView) -> Value {
    let limits = &view.spec.limits;
    let ends = view.expires_at.unwrap_or_else(|| view.created_at.after(Duration::from_secs(86_400)));
    json!({
        "templateID": template_of(view),
        "alias": template_of(view),
        "sandboxID": view.id.bare(),
        "clientID": CLIENT,
        "startedAt": view.created_at,
        "endAt": ends,
        "cpuCount": limits.cpus.milli().div_ceil(1000),
        "memoryMB": limits.memory.as_u64() >> 20,
        "diskSizeMB": limits.disk.as_u64() >> 20,
        "metadata": labels::metadata(&view.spec.labels),
        "state": if is_paused(view) { "paused" } else { "running" },
        "envdVersion": ENVD_VERSION,
    })
}

impl Dialect {
    /// Everything about one sandbox.
    pub(crate) fn detail(&self, caller: &Caller, view: &SandboxView) -> Result<Value, Refusal> {
        let mut detail = listed(view);
        detail["envdAccessToken"] = self.control.sandbox_token(caller, view.id, ENVD)?.into();
        detail["domain"] = json!(self.settings.domain);
        detail["network"] = json!({"allowPublicTraffic": view.spec.labels.public_ports() == Some(true)});
        detail["allowInternetAccess"] = (view.spec.network != NetworkPolicy::None).into();
        detail["lifecycle"] = json!({
            "autoResume": view.spec.labels.get(AUTO_RESUME) == Some("true"),
            "onTimeout": match view.spec.lifetime.then { OnEnd::Pause => "pause", OnEnd::Delete => "kill" },
        });
        if is_paused(view) {
            detail["pauseMode"] = "full".into();
        }
        Ok(detail)
    }
}
