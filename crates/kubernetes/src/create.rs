//! Making a sandbox: once for each id, waited for, checked, and taken back when nobody wants it any more.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use sandstorm_provider::{CreateOptions, Error, OpContext, Result, Sandbox};
use sandstorm_types::{ErrorKind, NetworkPolicy, Retry, SandboxId, SandboxSpec, TenantId, Unmet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::error::{of, senseless};
use crate::living::Living;
use crate::places::Making;
use crate::verdict::{Standing, standing};
use crate::{join, marks, network, pod, view, walls};

/// How long taking back may take when nobody waits for it.
const TAKING_BACK: Duration = Duration::from_secs(60);

/// How often a claim is asked whether it was refused.
const ASK_CLAIM: Duration = Duration::from_millis(500);

/// How long a forbidden address is tried: a network that keeps to its policy mostly says nothing.
const TRY_NETWORK: Duration = Duration::from_secs(1);

impl Cluster {
    pub(crate) async fn create(
        self: &Arc<Self>,
        cx: &OpContext,
        spec: &SandboxSpec,
        opts: CreateOptions,
    ) -> Result<Sandbox> {
        cx.check("create").map_err(Error::with_not_started)?;
        self.check_wanted(spec, &opts)?;
        let making = self.places.begin(opts.id)?;
        // It is followed to its end whatever becomes of the caller, so that `destroy` has something to wait for and what
        // was made for nobody is taken back.
        let gone = CancellationToken::new();
        let _on_drop = gone.clone().drop_guard();
        let cancelled = cx.cancellation().clone();
        let (cluster, spec, tenant) = (Arc::clone(self), spec.clone(), cx.tenant());
        let work = async move {
            let unwanted = async {
                tokio::select! {
                    () = gone.cancelled() => {}
                    () = cancelled.cancelled() => {}
                }
            };
            cluster.make(tenant, &spec, &opts, making, unwanted).await
        };
        cx.run("create", self.tasks.complete(Box::pin(work))).await
    }

    fn check_wanted(&self, spec: &SandboxSpec, opts: &CreateOptions) -> Result<()> {
        let mut unmet = self.unmet(spec);
        if !opts.mounts.is_empty() {
            let why = "trees of this machine cannot be shown in a cluster";
            unmet.push(Unmet::new("mounts", opts.mounts.len().to_string(), "none", why));
        }
        if unmet.is_empty() { Ok(()) } else { Err(Error::unmet(unmet)) }
    }

    async fn make(
        self: Arc<Self>,
        tenant: TenantId,
        spec: &SandboxSpec,
        opts: &CreateOptions,
        making: Making,
        unwanted: impl Future<Output = ()>,
    ) -> Result<Sandbox> {
        let id = opts.id;
        let claims = opts.pooled && self.claims.as_ref().is_some_and(|claims| view::fits(&claims.pool, spec));
        if let Err(error) = self.ask(tenant, spec, opts, claims).await {
            // Of a conflict the other one is not ours to remove, and what was refused was not begun.
            if !error.is_not_started() && error.kind() != ErrorKind::Conflict {
                self.take_back(id).await;
                // Also where there was no pod that could have told of it.
                if matches!(spec.network, NetworkPolicy::Allow(_)) {
                    self.drop_list(id).await;
                }
            }
            return Err(match error.kind() {
                ErrorKind::NotFound => {
                    Error::new(ErrorKind::Provider, "the cluster has no place for the sandbox")
                        .with_not_started()
                        .with_source(error)
                }
                _ => error,
            });
        }
        let coming = async {
            let pod = self.come_up(id, claims).await?;
            self.take_on(id, spec, &pod, claims).await.map(|living| (living, pod))
        };
        let come = tokio::select! {
            come = coming => come,
            () = unwanted => Err(Error::new(ErrorKind::Cancelled, "the caller gave up")),
        };
        let seen = come.and_then(|(living, pod)| {
            let seen = view::sandbox(&self.config, id, &pod);
            seen.map(|seen| (living, seen)).ok_or_else(|| senseless("what the pod is cannot be read"))
        });
        match seen {
            Ok((living, seen)) => {
                making.made(living);
                Ok(seen)
            }
            Err(error) => {
                self.take_back(id).await;
                Err(error)
            }
        }
    }

    /// Asks the cluster for the pod, or for a claim on one. What it may reach is said before it is there.
    async fn ask(
        &self,
        tenant: TenantId,
        spec: &SandboxSpec,
        opts: &CreateOptions,
        claims: bool,
    ) -> Result<()> {
        match &self.claims {
            Some(pool) if claims => {
                let labels = marks::labels(&self.config.owner, opts.id, tenant, spec, SystemTime::now());
                let annotations = marks::annotations(spec, self.config.strict_filter);
                pool.make(opts.id, labels, annotations, self.config.longest_life).await
            }
            _ => {
                let pod = pod::pod(&self.config, spec, opts, tenant)?;
                let Some(list) = self.lists.policy(opts.id, &spec.network)? else {
                    return self.pods.create(&PostParams::default(), &pod).await.map(drop).map_err(of);
                };
                self.lists.make(&list).await?;
                let made = self.ask_for_listed(opts.id, &pod).await;
                if let Err(error) = &made
                    && (error.is_not_started() || error.kind() == ErrorKind::Conflict)
                {
                    self.drop_list(opts.id).await;
                }
                made
            }
        }
    }

    /// A pod whose policy is there already; from then on the one goes with the other, whatever becomes of us.
    async fn ask_for_listed(&self, id: SandboxId, pod: &Pod) -> Result<()> {
        let made = self.pods.create(&PostParams::default(), pod).await.map_err(of)?;
        let uid = made.metadata.uid.ok_or_else(|| senseless("a pod without an id"))?;
        // It is begun by now, whatever the answer says of itself.
        let untied = |error: Error| {
            Error::new(ErrorKind::Provider, "the network policy of the sandbox cannot be tied to its pod")
                .with_retry(error.retry())
                .with_source(error)
        };
        self.lists.tie(id, &uid).await.map_err(untied)
    }

    /// Waits until the pod is ready.
    async fn come_up(&self, id: SandboxId, claims: bool) -> Result<Arc<Pod>> {
        let begin = Instant::now();
        let mut changes = self.seen.changes();
        let mut room_until = None;
        loop {
            let seen = self.seen.get(&id);
            match seen.as_deref().map(standing) {
                Some(Standing::Ready) => return seen.ok_or_else(|| senseless("a pod that is not there")),
                Some(Standing::Hopeless(error)) => return Err(error),
                Some(Standing::Over(ended)) => {
                    return Err(Error::new(ErrorKind::Provider, "the pod ended before it was ready")
                        .with("reason", ended.reason));
                }
                Some(Standing::Going) => {
                    return Err(Error::new(ErrorKind::Provider, "the pod was deleted before it was ready"));
                }
                Some(Standing::NoRoom(words)) => {
                    let until = *room_until.get_or_insert_with(|| Instant::now() + self.config.room_within);
                    if Instant::now() >= until {
                        return Err(Error::new(
                            ErrorKind::Capacity,
                            "the cluster has no room for the sandbox",
                        )
                        .with("scheduler", words));
                    }
                }
                Some(Standing::Coming) => room_until = None,
                None => {}
            }
            if begin.elapsed() >= self.config.ready_within {
                return Err(Error::new(ErrorKind::Timeout, "the pod was not ready in time")
                    .with_retry(Retry::Elsewhere));
            }
            if claims
                && seen.is_none()
                && let Some(pool) = &self.claims
                && let Some(refusal) = pool.refusal(id).await?
            {
                return Err(refusal);
            }
            // Whatever is decided by a clock is looked at now and then.
            let _ = tokio::time::timeout(ASK_CLAIM, changes.changed()).await;
        }
    }

    /// Joins the agent of a pod that is up, and looks whether its walls stand.
    async fn take_on(
        &self,
        id: SandboxId,
        spec: &SandboxSpec,
        pod: &Pod,
        claims: bool,
    ) -> Result<Arc<Living>> {
        walls::check(&self.config, pod)?;
        if let Some(pool) = self.claims.as_ref().filter(|_| claims) {
            pool.check(pod)?;
        }
        let name = pod.metadata.name.clone().ok_or_else(|| senseless("a pod without a name"))?;
        let living = Living::new(id, spec.clone(), name, marks::is_strict(&pod.metadata));
        living.agent(self).await?;
        living.begin_counting(self).await?;
        if let Some(address) = network::tried(self.config.enforced, &spec.network)
            && join::reaches(self, &living.pod, address, TRY_NETWORK).await?
        {
            return Err(Error::new(
                ErrorKind::Isolation,
                "the cluster's network does not keep to its policies",
            )
            .with("reached", address));
        }
        Ok(living)
    }

    /// Removes what was said about the network of a pod that is not there.
    async fn drop_list(&self, id: SandboxId) {
        match tokio::time::timeout(TAKING_BACK, self.lists.remove(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(sandbox = %id, %error, "a network policy that nobody needs could not be removed")
            }
            Err(_) => tracing::warn!(sandbox = %id, "a network policy that nobody needs is still there"),
        }
    }

    async fn take_back(&self, id: SandboxId) {
        match tokio::time::timeout(TAKING_BACK, self.remove(id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(sandbox = %id, %error, "a pod that nobody wants could not be removed")
            }
            Err(_) => tracing::warn!(sandbox = %id, "a pod that nobody wants is still there"),
        }
    }
}
