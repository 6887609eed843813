//! Ending sandboxes, and seeing that they are gone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Retry, SandboxId};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::error::of;
use crate::marks;
use crate::verdict::Ended;

/// How long a node may take to end a pod.
const GOING: Duration = Duration::from_secs(45);

/// How often it is asked whether a pod is gone, when nothing is heard.
const ASK: Duration = Duration::from_millis(500);

impl Cluster {
    /// Ends a sandbox. Whoever drops it midway leaves what the next one ends.
    pub(crate) async fn destroy(&self, id: &SandboxId) -> Result<()> {
        self.places.settled(id).await;
        let living = self.places.get(id);
        if let Some(living) = &living {
            living.set_ending(true);
        }
        let removed = self.remove(*id).await;
        if let Some(living) = living {
            match &removed {
                Ok(()) => {
                    living.end(Ended::because("it was destroyed"));
                }
                Err(_) => living.set_ending(false),
            }
        }
        removed?;
        self.places.forget(id);
        Ok(())
    }

    /// Removes whatever the cluster has of a sandbox, and waits until it is gone.
    pub(crate) async fn remove(&self, id: SandboxId) -> Result<()> {
        if let Some(claims) = &self.claims {
            claims.delete(id).await?;
        }
        let until = Instant::now() + GOING;
        let mut changes = self.seen.changes();
        let mut has_list = self.seen.get(&id).is_some_and(|pod| marks::has_list(&pod.metadata));
        while let Some(pod) = self.find(id).await? {
            has_list |= marks::has_list(&pod.metadata);
            self.delete(&pod).await?;
            if Instant::now() >= until {
                return Err(Error::new(ErrorKind::Provider, "the pod is deleted, but it is still there")
                    .with_retry(Retry::Here)
                    .with("sandbox", id));
            }
            // The news that it is gone comes soon, or something else does.
            let gone = async { while self.seen.get(&id).is_some() && changes.changed().await.is_ok() {} };
            let _ = tokio::time::timeout(ASK, gone).await;
        }
        // While there is a pod, what it may reach has to be said.
        if has_list {
            self.lists.remove(id).await?;
        }
        self.seen.remove(&id, None);
        Ok(())
    }

    /// The pod of a sandbox: by its name, or, out of a pool, as it was seen. What is not ours is none.
    async fn find(&self, id: SandboxId) -> Result<Option<Pod>> {
        let name = match self.seen.get(&id).and_then(|pod| pod.metadata.name.clone()) {
            Some(name) => name,
            None => marks::name_of(id),
        };
        let found = self.pods.get_opt(&name).await.map_err(of)?;
        Ok(found.filter(|pod| marks::id_of(&self.config.owner, &pod.metadata) == Some(id)))
    }

    async fn delete(&self, pod: &Pod) -> Result<()> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let exactly = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::default().grace_period(1).preconditions(exactly);
        match self.pods.delete(name, &params).await {
            Ok(_) => Ok(()),
            // Gone, or another one has its name by now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(of(error)),
        }
    }
}
