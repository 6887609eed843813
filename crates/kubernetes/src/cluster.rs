//! The cluster: what was agreed on when it was met, and what everything here works with.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy as KubePolicy;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config as KubeConfig};
use sandstorm_provider::{Error, Events, ProviderEvent, ProviderInfo, Result, Sandbox, Tasks};
use sandstorm_types::{Capabilities, ErrorKind, Retry, SandboxId, SandboxSpec, State, Template, Unmet};
use tower::layer::layer_fn;

use crate::bounded::Bounded;
use crate::claim::Claims;
use crate::config::{Access, Config, Enforced};
use crate::error::{causes, no_sandbox, senseless};
use crate::informer::{Change, Informer, Seen};
use crate::living::Living;
use crate::network::Lists;
use crate::places::Places;
use crate::verdict::{Ended, Standing, standing, why_gone};
use crate::{marks, network, view};

/// How long a connection may take to be made, and how long all that it takes to meet a cluster.
const CONNECT: Duration = Duration::from_secs(5);
const MEET: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) info: ProviderInfo,
    pub(crate) can: Capabilities,
    pub(crate) config: Config,
    pub(crate) pods: Api<Pod>,
    pub(crate) lists: Lists,
    pub(crate) claims: Option<Claims>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) places: Arc<Places>,
    pub(crate) events: Events,
    pub(crate) tasks: Tasks,
}

impl Cluster {
    /// Meets the cluster: reads who we are there, makes the network policies, finds our pods.
    pub(crate) async fn meet(config: Config) -> Result<Arc<Self>> {
        let late = |_| {
            let message = "the cluster did not answer in time";
            Error::new(ErrorKind::Timeout, message).with_retry(Retry::Elsewhere).with_not_started()
        };
        tokio::time::timeout(MEET, Self::get_to_know(config)).await.map_err(late)?
    }

    async fn get_to_know(config: Config) -> Result<Arc<Self>> {
        let client = client(&config.access).await?;
        let namespace = &config.namespace;
        let policies: Api<KubePolicy> = Api::namespaced(client.clone(), namespace);
        network::ensure(&policies, &config.owner, &config.denied).await.map_err(|error| {
            match error.kind() {
                ErrorKind::NotFound => {
                    Error::new(ErrorKind::InvalidRequest, "the cluster has no such namespace")
                        .with("namespace", namespace)
                        .with_not_started()
                }
                _ => error,
            }
        })?;
        let claims = match &config.warm_pool {
            Some(pool) => Some(Claims::meet(&client, namespace, pool.clone()).await?),
            None => None,
        };
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let seen = Arc::<Seen>::default();
        let informer = Informer { pods: pods.clone(), owner: config.owner.clone(), seen: Arc::clone(&seen) };
        let (place, _) = informer.list().await?;
        let lists = Lists::new(policies, config.owner.clone(), config.denied.clone());
        let info = ProviderInfo {
            name: config.name.clone(),
            kind: "kubernetes".to_owned(),
            region: config.region.clone(),
        };
        let can = capabilities(&config);
        let cluster = Arc::new(Self {
            info,
            can,
            config,
            pods,
            lists,
            claims,
            seen,
            places: Arc::default(),
            events: Events::default(),
            tasks: Tasks::default(),
        });
        // The task does not keep the cluster, so that dropping the provider ends it.
        let watched = Arc::downgrade(&cluster);
        let following = informer.follow(place, move |change| {
            if let Some(cluster) = watched.upgrade() {
                cluster.hear(&change);
            }
        });
        cluster.tasks.start("follow pods", following);
        cluster.tasks.start("forget execs", Arc::clone(&cluster.places).drop_old());
        let (seen, places) = (Arc::clone(&cluster.seen), Arc::clone(&cluster.places));
        let lives = move |id: &SandboxId| places.is_being_made(id) || seen.get(id).is_some();
        cluster.tasks.start("sweep network policies", cluster.lists.clone().keep_swept(lives));
        Ok(cluster)
    }

    /// A pod changed. One that ended although nobody asked for it is news.
    fn hear(&self, change: &Change) {
        let ended = match standing(&change.pod) {
            Standing::Over(ended) => ended,
            _ if change.is_gone => why_gone(&change.pod),
            _ => return,
        };
        let Some(living) = self.places.get(&change.id) else { return };
        living.see(Arc::clone(&change.pod));
        if living.end(ended.clone()) && !living.is_ending() {
            self.events.tell(ProviderEvent::Ended { sandbox: change.id, reason: ended.reason });
        }
    }

    /// A sandbox as it is, or as it ended where nobody has removed it yet.
    pub(crate) fn look(&self, id: &SandboxId) -> Result<Sandbox> {
        let senseless = || senseless("what the pod is cannot be read");
        if let Some(pod) = self.seen.get(id) {
            return view::sandbox(&self.config, *id, &pod).ok_or_else(senseless);
        }
        let living = self.places.get(id).filter(|living| !living.is_ending());
        let ended = living.and_then(|living| Some((living.ended()?, living.last_seen()?)));
        let (ended, pod) = ended.ok_or_else(|| no_sandbox(id))?;
        let sandbox = view::sandbox(&self.config, *id, &pod).ok_or_else(senseless)?;
        Ok(Sandbox { state: State::Failed { reason: ended.reason }, ..sandbox })
    }

    /// Every reason why such a sandbox cannot be had.
    pub(crate) fn unmet(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let mut unmet = self.can.unmet(spec);
        if self.config.enforced == Enforced::No {
            let why = "nobody says that the cluster's network keeps to policies: set how that is known";
            unmet
                .iter_mut()
                .filter(|unmet| matches!(unmet.feature.as_str(), "network_none" | "network_allow"))
                .for_each(|unmet| why.clone_into(&mut unmet.why));
        }
        unmet.extend(network::unmet(&spec.network));
        if matches!(&spec.template, Template::Image(image) if image.is_empty() || image.len() > 512) {
            unmet.push(Unmet::new(
                "template_image",
                "an image",
                "none",
                "the name of the image makes no sense",
            ));
        }
        unmet
    }

    /// A sandbox of ours: from memory, or as its pod says after a restart.
    pub(crate) async fn living(&self, id: &SandboxId) -> Result<Arc<Living>> {
        if let Some(living) = self.places.get(id) {
            return match living.ended() {
                Some(ended) => Err(over(id, &ended)),
                None => Ok(living),
            };
        }
        if self.places.is_being_made(id) {
            return Err(no_sandbox(id));
        }
        let pod = self.seen.get(id).ok_or_else(|| no_sandbox(id))?;
        match standing(&pod) {
            Standing::Ready => {}
            Standing::Over(ended) => return Err(over(id, &ended)),
            _ => {
                let message = "the sandbox is not ready";
                return Err(Error::new(ErrorKind::Conflict, message).with("sandbox", id));
            }
        }
        let spec =
            marks::spec_of(&pod.metadata).ok_or_else(|| senseless("what the pod is cannot be read"))?;
        let name = pod.metadata.name.clone().ok_or_else(|| senseless("a pod without a name"))?;
        Ok(self.places.add(Living::new(*id, spec, name, marks::is_strict(&pod.metadata))))
    }
}

fn over(id: &SandboxId, ended: &Ended) -> Error {
    Error::new(ErrorKind::Conflict, "the sandbox has ended").with("sandbox", id).with("reason", &ended.reason)
}

async fn client(access: &Access) -> Result<Client> {
    let wrong = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(ErrorKind::InvalidRequest, "there is no way to the cluster that could be used")
            .with_not_started()
            .with("cause", causes(&*error))
            .with_source(error)
    };
    let mut config = match access {
        Access::Inferred => KubeConfig::infer().await.map_err(|error| wrong(error.into()))?,
        Access::File { path, context } => {
            let file = Kubeconfig::read_from(path).map_err(|error| wrong(error.into()))?;
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            let read = KubeConfig::from_custom_kubeconfig(file, &options).await;
            read.map_err(|error| wrong(error.into()))?
        }
    };
    config.connect_timeout = Some(CONNECT);
    // Whoever asks us decides whether to wait or to go elsewhere.
    config.default_retry = false;
    let client = ClientBuilder::try_from(config).map_err(|error| wrong(error.into()))?;
    Ok(client.with_layer(&layer_fn(Bounded)).build())
}

fn capabilities(config: &Config) -> Capabilities {
    let kept = config.enforced != Enforced::No;
    Capabilities {
        isolation: config.isolation,
        template_host: true,
        template_image: config.other_images,
        exec: true,
        exec_stdin: true,
        exec_tty: true,
        exec_background: true,
        exec_attach: true,
        exec_signals: true,
        exec_channel: true,
        files: true,
        files_archive: true,
        files_search: true,
        files_watch: true,
        connect: true,
        usage: true,
        network_none: kept,
        network_allow: kept,
        network_open: true,
        warm_start: config.warm_pool.is_some(),
        limits: view::limits(config),
        max_memory: config.max_memory,
        max_milli_cpus: config.max_cpus.map(|cpus| cpus.milli()),
        max_lifetime_seconds: Some(config.longest_life.as_secs()),
        ..Capabilities::default()
    }
}
