//! The policies of sandboxes that have a list of what they may reach: one for each, there before its pod and gone after it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::networking::v1::NetworkPolicy as KubePolicy;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, IpNetwork, NetworkPolicy, SandboxId, Target};
use serde_json::{Value, json};

use super::{blocks, policy};
use crate::config::Owner;
use crate::error::{of, senseless};
use crate::marks;

/// Longest policy that a cluster surely stores.
const MOST_BYTES: usize = 512 << 10;

/// After which time a policy without a pod is one that nobody is about to use.
const LEFT_FOR: Duration = Duration::from_secs(600);

/// How long looking for them may take. It is done as often as they may be left.
const SWEEP: Duration = Duration::from_secs(300);

/// Policies of one answer, which is not too long even if all of them are, and answers of one look at all of them.
const PAGE: u32 = 100;
const MOST_PAGES: usize = 1000;

#[derive(Debug, Clone)]
pub(crate) struct Lists {
    api: Api<KubePolicy>,
    owner: Owner,
    /// What no list reaches.
    denied: Vec<IpNetwork>,
}

impl Lists {
    pub(crate) fn new(api: Api<KubePolicy>, owner: Owner, denied: Vec<IpNetwork>) -> Self {
        Self { api, owner, denied }
    }

    /// The policy of a sandbox, unless it needs none of its own.
    pub(crate) fn policy(&self, id: SandboxId, network: &NetworkPolicy) -> Result<Option<KubePolicy>> {
        if !matches!(network, NetworkPolicy::Allow(_)) {
            return Ok(None);
        }
        let labels = json!({ marks::OWNER: self.owner.as_str(), marks::SANDBOX: id.bare() });
        let policy = policy(&marks::name_of(id), labels.clone(), labels, egress(network, &self.denied));
        if policy.to_string().len() > MOST_BYTES {
            let message = "the list of what the sandbox may reach is too long for a cluster";
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_not_started());
        }
        serde_json::from_value(policy).map(Some).map_err(|error| {
            let message = "the network policy cannot be described";
            Error::new(ErrorKind::Internal, message).with_not_started().with_source(error)
        })
    }

    pub(crate) async fn make(&self, policy: &KubePolicy) -> Result<()> {
        self.api.create(&PostParams::default(), policy).await.map(drop).map_err(of)
    }

    /// Lets the policy go with its pod.
    pub(crate) async fn tie(&self, id: SandboxId, uid: &str) -> Result<()> {
        let name = marks::name_of(id);
        let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
        let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
        self.api.patch(&name, &PatchParams::default(), &patch).await.map(drop).map_err(of)
    }

    /// Removes the policy of a sandbox; absent is success.
    pub(crate) async fn remove(&self, id: SandboxId) -> Result<()> {
        match self.api.delete(&marks::name_of(id), &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(of(error)),
        }
    }

    /// Removes what servers left, now and then, for ever. What is too young for one look is there for the next.
    pub(crate) async fn keep_swept(self, lives: impl Fn(&SandboxId) -> bool) {
        loop {
            match tokio::time::timeout(SWEEP, self.sweep(&lives)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "network policies that nobody needs cannot be looked for")
                }
                Err(_) => tracing::warn!("network policies that nobody needs are not found in time"),
            }
            tokio::time::sleep(LEFT_FOR).await;
        }
    }

    /// Removes what a server left that ended between a policy and its pod. `lives`: such a sandbox has a pod, or will.
    async fn sweep(&self, lives: impl Fn(&SandboxId) -> bool) -> Result<()> {
        let ours = format!("{},{}", marks::selector(&self.owner), marks::SANDBOX);
        let mut params = ListParams::default().labels(&ours).limit(PAGE);
        for _ in 0..MOST_PAGES {
            let page = self.api.list(&params).await.map_err(of)?;
            for policy in &page.items {
                self.remove_left(policy, &lives).await;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
        Err(senseless("a list without an end"))
    }

    async fn remove_left(&self, policy: &KubePolicy, lives: impl Fn(&SandboxId) -> bool) {
        let meta = &policy.metadata;
        let Some(id) = marks::id_of(&self.owner, meta) else { return };
        let before = SystemTime::now() - LEFT_FOR;
        let made = meta.creation_timestamp.as_ref().map(|time| SystemTime::from(time.0));
        let has_pod = meta.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        if lives(&id) || has_pod || made.is_none_or(|made| made > before) {
            return;
        }
        let exactly = Preconditions { uid: meta.uid.clone(), resource_version: None };
        let params = DeleteParams::default().preconditions(exactly);
        if let Err(error) = self.api.delete(&marks::name_of(id), &params).await {
            tracing::warn!(sandbox = %id, %error, "a network policy that nobody needs could not be removed");
        }
    }
}

/// What a list lets out. Rules with the same ports are one.
fn egress(network: &NetworkPolicy, denied: &[IpNetwork]) -> Value {
    let mut by_ports: BTreeMap<&[u16], Vec<Value>> = BTreeMap::new();
    for rule in network.rules() {
        let block = match rule.target() {
            Target::Ip(address) => blocks::public(&IpNetwork::of(*address), denied),
            Target::Network(network) => blocks::public(network, denied),
            Target::Host(_) => None,
        };
        if let Some(block) = block {
            by_ports.entry(rule.ports()).or_default().push(block);
        }
    }
    let rules = by_ports.into_iter().map(|(ports, to)| {
        let ports: Vec<_> = ports.iter().map(|port| json!({ "protocol": "TCP", "port": port })).collect();
        json!({ "to": to, "ports": ports })
    });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn a_list_becomes_rules_by_ports() {
        let list = json!({ "allow": ["ip:8.8.8.8", "ip:1.1.1.0/24", "ip:9.9.9.9:853", "ip:10.0.0.1", "ip:[2a00::1]:22"] });
        let egress = egress(&serde_json::from_value(list).unwrap(), &[]);
        let tcp = |port: u16| json!({ "protocol": "TCP", "port": port });
        let block = |cidr: &str| json!({ "ipBlock": { "cidr": cidr } });
        assert_eq!(
            egress,
            json!([
                { "to": [block("2a00::1/128")], "ports": [tcp(22)] },
                { "to": [block("8.8.8.8/32"), block("1.1.1.0/24")], "ports": [tcp(80), tcp(443)] },
                { "to": [block("9.9.9.9/32")], "ports": [tcp(853)] },
            ])
        );
    }

    type Questions = mpsc::UnboundedReceiver<(http::Method, String)>;

    /// Lists of a cluster that has these policies.
    fn lists(page: impl Fn(&http::Uri) -> Value + Send + Sync + 'static) -> (Lists, Questions) {
        let (asked, questions) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let _ = asked.send((request.method().clone(), request.uri().path().to_owned()));
            let answer = match request.method() {
                &http::Method::GET => page(request.uri()),
                _ => json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }),
            };
            let answer = kube::client::Body::from(answer.to_string().into_bytes());
            async { Ok::<_, std::convert::Infallible>(http::Response::new(answer)) }
        });
        let api = Api::namespaced(kube::Client::new(service, "default"), "default");
        (Lists::new(api, "me".parse().unwrap(), Vec::new()), questions)
    }

    fn page(items: Value, further: &str) -> Value {
        json!({ "kind": "NetworkPolicyList", "apiVersion": "networking.k8s.io/v1", "metadata": { "continue": further },
            "items": items })
    }

    #[tokio::test]
    async fn only_old_lists_without_a_pod_are_swept() {
        let (old, new) = (
            "2020-01-01T00:00:00Z".to_owned(),
            sandstorm_types::Timestamp::from(SystemTime::now()).to_string(),
        );
        let (left, lives, tied, fresh) = (
            SandboxId::from_bits(1),
            SandboxId::from_bits(2),
            SandboxId::from_bits(3),
            SandboxId::from_bits(4),
        );
        let item = |id: SandboxId, at: &str, owners: Value| {
            json!({ "metadata": { "name": marks::name_of(id), "uid": id.bare(), "creationTimestamp": at, "ownerReferences": owners,
                "labels": { marks::OWNER: "me", marks::SANDBOX: id.bare() } } })
        };
        let pod = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y" }]);
        let none = || json!([]);
        let first = page(json!([item(lives, &old, none()), item(tied, &old, pod)]), "further");
        let last = page(json!([item(fresh, &new, none()), item(left, &old, none())]), "");
        let (lists, mut questions) = lists(move |uri| {
            let further = uri.query().is_some_and(|query| query.contains("continue=further"));
            if further { last.clone() } else { first.clone() }
        });
        lists.sweep(|id| *id == lives).await.unwrap();
        let mut removed = Vec::new();
        while let Ok((method, path)) = questions.try_recv() {
            removed.extend((method == http::Method::DELETE).then_some(path));
        }
        assert_eq!(removed.len(), 1, "{removed:?}");
        assert!(removed[0].ends_with(&marks::name_of(left)), "{removed:?}");
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_given_up() {
        let (lists, mut questions) = lists(|_| page(json!([]), "further"));
        assert!(lists.sweep(|_| false).await.is_err());
        let mut asked = 0;
        while questions.try_recv().is_ok() {
            asked += 1;
        }
        assert_eq!(asked, MOST_PAGES);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_too_young_is_looked_at_again() {
        let (lists, mut questions) = lists(|_| page(json!([]), ""));
        let begin = tokio::time::Instant::now();
        let twice = async {
            questions.recv().await.unwrap();
            questions.recv().await.unwrap();
        };
        tokio::select! {
            () = lists.keep_swept(|_| false) => {}
            () = twice => {}
        }
        assert_eq!(begin.elapsed().as_secs(), LEFT_FOR.as_secs());
    }

    #[test]
    fn a_list_of_private_addresses_lets_nothing_out() {
        let list = serde_json::from_value(json!({ "allow": ["ip:10.0.0.1", "ip:169.254.169.254"] })).unwrap();
        assert_eq!(egress(&list, &[]), json!([]));
    }
}
