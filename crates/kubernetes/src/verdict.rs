//! What a pod's status means for its sandbox.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use sandstorm_provider::Error;
use sandstorm_types::{ErrorKind, LimitName, Retry};

use crate::error::plain;

/// How a pod stands.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It is on its way.
    Coming,
    /// There is no node with room for it, in the scheduler's words.
    NoRoom(String),
    /// It will not come up.
    Hopeless(Error),
    Ready,
    /// It is being ended.
    Going,
    Over(Ended),
}

/// Why a pod ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) reason: String,
    /// The limit that ended it, if one did.
    pub(crate) limit: Option<LimitName>,
}

impl Ended {
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), limit: None }
    }
}

pub(crate) fn standing(pod: &Pod) -> Standing {
    let Some(status) = &pod.status else { return Standing::Coming };
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let ended = containers.iter().find_map(terminated);
    if matches!(phase, "Failed" | "Succeeded") || ended.is_some() {
        return Standing::Over(why(status, ended));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Standing::Going;
    }
    if let Some(error) = containers.iter().find_map(hopeless) {
        return Standing::Hopeless(error);
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    if condition("Ready").is_some_and(|ready| ready.status == "True") {
        return Standing::Ready;
    }
    match condition("PodScheduled") {
        Some(PodCondition { status, reason, message, .. })
            if status == "False" && reason.as_deref() == Some("Unschedulable") =>
        {
            Standing::NoRoom(plain(message.as_deref().unwrap_or_default()))
        }
        _ => Standing::Coming,
    }
}

fn terminated(container: &ContainerStatus) -> Option<String> {
    let ended = container.state.as_ref()?.terminated.as_ref()?;
    Some(ended.reason.clone().unwrap_or_else(|| format!("exit code {}", ended.exit_code)))
}

/// Why a pod is gone that had not ended when it was last seen.
pub(crate) fn why_gone(pod: &Pod) -> Ended {
    match pod.status.as_ref().and_then(disruption) {
        Some(words) => Ended::because(words),
        None => Ended::because("the pod was deleted"),
    }
}

/// What the cluster says about a pod that it has to end: eviction, preemption, a node that goes away.
fn disruption(status: &PodStatus) -> Option<String> {
    let all = status.conditions.as_deref().unwrap_or_default();
    let one = all.iter().find(|one| one.type_ == "DisruptionTarget" && one.status == "True")?;
    let words =
        [one.reason.as_deref().unwrap_or("DisruptionTarget"), one.message.as_deref().unwrap_or_default()];
    Some(plain(words.join(": ").trim_end_matches(": ")))
}

fn why(status: &PodStatus, container: Option<String>) -> Ended {
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    let limit = match (reason, container.as_deref()) {
        (_, Some("OOMKilled")) => Some(LimitName::Memory),
        ("DeadlineExceeded", _) => Some(LimitName::Wall),
        // The node's own lack of room is not the sandbox's fault.
        ("Evicted", _) if message.contains("exceed") || message.contains("limit") => Some(LimitName::Disk),
        _ => None,
    };
    let disruption = disruption(status).unwrap_or_default();
    // The node says the same again in its own words.
    let disruption = if reason.is_empty() { disruption.as_str() } else { "" };
    let words = [reason, disruption, container.as_deref().unwrap_or_default(), message];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let reason = if words.is_empty() { "the pod ended".to_owned() } else { plain(&words.join(": ")) };
    Ended { reason, limit }
}

/// What keeps a container from starting, however long one waits.
fn hopeless(container: &ContainerStatus) -> Option<Error> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let (kind, message) = match reason {
        "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
            (ErrorKind::InvalidRequest, "the image of the sandbox cannot be had")
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            (ErrorKind::Isolation, "the container of the sandbox cannot be made")
        }
        _ => return None,
    };
    let words = plain(waiting.message.as_deref().unwrap_or_default());
    Some(Error::new(kind, message).with_retry(Retry::Elsewhere).with("reason", reason).with("message", words))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(status: Value) -> Standing {
        standing(&serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap())
    }

    fn ended(status: Value) -> Ended {
        match of(status) {
            Standing::Over(ended) => ended,
            other => panic!("{other:?}"),
        }
    }

    fn waiting(reason: &str) -> Value {
        let waiting = json!({ "waiting": { "reason": reason, "message": "m" } });
        json!({ "phase": "Pending", "containerStatuses": [container(waiting)] })
    }

    fn container(state: Value) -> Value {
        json!({ "name": "sandbox", "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": state })
    }

    #[test]
    fn a_pod_comes_and_is_ready() {
        assert!(matches!(of(json!({ "phase": "Pending" })), Standing::Coming));
        let ready = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        assert!(matches!(of(ready), Standing::Ready));
        let full = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient cpu" }
        ] });
        assert!(matches!(of(full), Standing::NoRoom(words) if words.contains("Insufficient cpu")));
    }

    #[test]
    fn what_will_never_start_is_told_at_once() {
        for reason in ["ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"] {
            let Standing::Hopeless(error) = of(waiting(reason)) else { panic!("{reason}") };
            assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidRequest, Retry::Elsewhere));
        }
        let Standing::Hopeless(error) = of(waiting("CreateContainerError")) else { panic!("it comes") };
        assert_eq!(error.kind(), ErrorKind::Isolation);
        // A registry that is away for a moment is asked again by the node.
        assert!(matches!(of(waiting("ErrImagePull")), Standing::Coming));
        assert!(matches!(of(waiting("ContainerCreating")), Standing::Coming));
    }

    #[test]
    fn who_made_a_pod_go_is_told() {
        let target = json!([{ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting" }]);
        let pod =
            |status: Value| serde_json::from_value(json!({ "metadata": {}, "status": status })).unwrap();
        let evicted = why_gone(&pod(json!({ "phase": "Running", "conditions": target })));
        assert_eq!(evicted.reason, "EvictionByEvictionAPI: Eviction API: evicting");
        assert_eq!(why_gone(&pod(json!({ "phase": "Running" }))), Ended::because("the pod was deleted"));
        let error = json!({ "terminated": { "reason": "Error", "exitCode": 137 } });
        let over =
            json!({ "phase": "Failed", "conditions": target, "containerStatuses": [container(error)] });
        assert_eq!(ended(over).reason, "EvictionByEvictionAPI: Eviction API: evicting: Error");
    }

    #[test]
    fn ends_name_their_limit() {
        let oom = json!({ "terminated": { "reason": "OOMKilled", "exitCode": 137 } });
        let oom = json!({ "phase": "Failed", "containerStatuses": [container(oom)] });
        assert_eq!(ended(oom).limit, Some(LimitName::Memory));
        assert_eq!(
            ended(json!({ "phase": "Failed", "reason": "DeadlineExceeded" })).limit,
            Some(LimitName::Wall)
        );
        let full = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\".";
        assert_eq!(
            ended(json!({ "phase": "Failed", "reason": "Evicted", "message": full })).limit,
            Some(LimitName::Disk)
        );
        let node = json!({ "phase": "Failed", "reason": "NodeLost", "message": "gone" });
        assert_eq!(ended(node), Ended { reason: "NodeLost: gone".to_owned(), limit: None });
        assert_eq!(ended(json!({ "phase": "Succeeded" })), Ended::because("the pod ended"));
    }
}
