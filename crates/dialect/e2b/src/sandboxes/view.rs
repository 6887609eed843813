//! Sandboxes as E2B's clients see them.

use std::time::Duration;

use sandstorm_control::server::{Caller, SandboxView};
use sandstorm_types::{NetworkPolicy, OnEnd, Phase, SandboxId};
use serde_json::{Value, json};

use super::labels::{self, AUTO_RESUME, REQUEST_HOST, TEMPLATE};
use super::network;
use crate::address::Here;
use crate::door::{ENVD, TRAFFIC};
use crate::refusal::Refusal;
use crate::settings::BASE;
use crate::state::Dialect;

/// The version of envd whose behaviour this is, for SDKs use nothing that came later. Metadata of files came with 0.6.2, entries
/// in changes with 0.6.3, network mounts to watch with 0.6.4, a bound on uploads that pause with 0.6.7.
pub(crate) const ENVD_VERSION: &str = "0.6.7";
/// Once the id of a machine; clients still want one.
const CLIENT: &str = "sandstorm";

pub(crate) fn is_paused(view: &SandboxView) -> bool {
    matches!(view.phase, Phase::Paused | Phase::Pausing)
}

impl Dialect {
    /// What a client needs to use a sandbox.
    pub(crate) fn access(
        &self,
        caller: &Caller,
        id: SandboxId,
        template: &str,
        here: &Here,
    ) -> Result<Value, Refusal> {
        Ok(json!({
            "templateID": template,
            "sandboxID": id.bare(),
            "clientID": CLIENT,
            "alias": template,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.control.sandbox_token(caller, id, ENVD)?,
            "trafficAccessToken": self.control.sandbox_token(caller, id, TRAFFIC)?,
            "domain": here.0,
        }))
    }

    pub(crate) fn access_to(
        &self,
        caller: &Caller,
        view: &SandboxView,
        here: &Here,
    ) -> Result<Value, Refusal> {
        self.access(caller, view.id, template_of(view), here)
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
    pub(crate) fn detail(&self, caller: &Caller, view: &SandboxView, here: &Here) -> Result<Value, Refusal> {
        let mut detail = listed(view);
        detail["envdAccessToken"] = self.control.sandbox_token(caller, view.id, ENVD)?.into();
        detail["domain"] = json!(here.0);
        let mut network = network::shown(&view.spec.network);
        network["allowPublicTraffic"] = (view.spec.labels.public_ports() == Some(true)).into();
        if let Some(mask) = view.spec.labels.get(REQUEST_HOST) {
            network["maskRequestHost"] = mask.into();
        }
        detail["network"] = network;
        detail["allowInternetAccess"] = (view.spec.network != NetworkPolicy::None).into();
        detail["lifecycle"] = json!({
            "autoResume": view.spec.labels.get(AUTO_RESUME) == Some("true"),
            "onTimeout": match view.spec.lifetime.then { OnEnd::Pause | OnEnd::PauseFiles => "pause", OnEnd::Delete => "kill" },
        });
        Ok(detail)
    }
}
