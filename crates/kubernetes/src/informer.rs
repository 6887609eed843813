//! What the cluster says about our pods, as it happens.
//!
//! All of them are listed once, then changes are followed from there on. A connection that is lost is made again from where it
//! was; where the cluster remembers that place no more (410), everything is listed anew.

mod kept;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Error as KubeError};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Retry, SandboxId};
use tokio::sync::watch;
use tokio::time::Instant;

use self::kept::{Full, Kept, length_of};
use crate::config::Owner;
use crate::error::of;
use crate::marks;

/// Pods of one answer, and answers of one list.
const PAGE: u32 = 100;
const MOST_PAGES: usize = 1000;

/// How long a list, or the beginning of an answer that goes on, may take.
const ANSWER: Duration = Duration::from_secs(60);

/// How long the cluster lets one connection be, and how long nothing may come on it: marks come about every minute.
const WATCH_SECONDS: u32 = 240;
const SILENCE: Duration = Duration::from_secs(270);

/// How long to wait after a failure, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Our pods as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    kept: Mutex<Kept>,
    /// There are more than are kept.
    is_full: AtomicBool,
    changes: watch::Sender<u64>,
}

/// What is heard of a pod.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) id: SandboxId,
    /// As it is, or as it was when it was last seen.
    pub(crate) pod: Arc<Pod>,
    pub(crate) is_gone: bool,
}

impl Seen {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Pod>> {
        self.kept().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<(SandboxId, Arc<Pod>)> {
        self.kept().iter().collect()
    }

    /// Something else is seen from now on when this changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Fails while there are pods of which nothing is seen.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_full.load(Ordering::Relaxed) { Err(too_much()) } else { Ok(()) }
    }

    fn put(&self, id: SandboxId, pod: Arc<Pod>) -> Result<()> {
        let length = length_of(&pod);
        let put = self.kept().put(id, pod, length);
        put.map_err(|Full| self.fill())?;
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Remembers that there was no room.
    fn fill(&self) -> Error {
        self.is_full.store(true, Ordering::Relaxed);
        too_much()
    }

    /// Takes a pod out, unless another one has its place.
    pub(crate) fn remove(&self, id: &SandboxId, uid: Option<&str>) {
        let mut kept = self.kept();
        if kept.get(id).is_some_and(|pod| uid.is_none() || pod.metadata.uid.as_deref() == uid) {
            kept.remove(id);
        }
        drop(kept);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Replaces everything, and says what is gone.
    fn replace(&self, all: Kept) -> Vec<(SandboxId, Arc<Pod>)> {
        let mut kept = self.kept();
        let gone = kept.iter().filter(|(id, _)| all.get(id).is_none()).collect();
        *kept = all;
        drop(kept);
        self.is_full.store(false, Ordering::Relaxed);
        self.changes.send_modify(|count| *count += 1);
        gone
    }
}

fn too_much() -> Error {
    Error::new(ErrorKind::Provider, "the cluster has more pods of ours than can be followed")
        .with_retry(Retry::Elsewhere)
}

#[derive(Debug)]
pub(crate) struct Informer {
    pub(crate) pods: Api<Pod>,
    pub(crate) owner: Owner,
    pub(crate) seen: Arc<Seen>,
}

/// Why a connection is over.
enum Over {
    /// It goes on from here, after something was heard.
    Resume,
    /// It failed; a little later it may not.
    Pause,
    /// The cluster does not know the place any more.
    Relist,
}

impl Informer {
    /// Lists everything; gives the place from which changes are to be followed, and every change that this is.
    pub(crate) async fn list(&self) -> Result<(String, Vec<Change>)> {
        let mut params = ListParams::default().labels(&marks::selector(&self.owner)).limit(PAGE);
        let mut all = Kept::default();
        for _ in 0..MOST_PAGES {
            let page = self.pods.list(&params).await.map_err(of)?;
            for (id, pod) in page.items.into_iter().filter_map(|pod| self.ours(pod)) {
                let length = length_of(&pod);
                all.put(id, pod, length).map_err(|Full| self.seen.fill())?;
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    let place = page.metadata.resource_version.unwrap_or_default();
                    let change = |is_gone| move |(id, pod)| Change { id, pod, is_gone };
                    let mut changes: Vec<Change> = all.iter().map(change(false)).collect();
                    changes.extend(self.seen.replace(all).into_iter().map(change(true)));
                    return Ok((place, changes));
                }
            }
        }
        Err(self.seen.fill())
    }

    /// Follows changes from a place on, for ever.
    pub(crate) async fn follow(self, mut place: String, mut tell: impl FnMut(Change) + Send) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.watch(&mut place, &mut tell, &mut pause).await {
                Over::Resume => continue,
                Over::Pause => {}
                Over::Relist => match tokio::time::timeout(ANSWER, self.list()).await {
                    Ok(Ok((from, changes))) => {
                        place = from;
                        changes.into_iter().for_each(&mut tell);
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "the pods of a cluster cannot be listed");
                        place.clear();
                    }
                    Err(_) => {
                        tracing::warn!("the pods of a cluster are not listed in time");
                        place.clear();
                    }
                },
            }
            // A cluster that ends everything at once is not asked without end.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn watch(
        &self,
        place: &mut String,
        tell: &mut (impl FnMut(Change) + Send),
        pause: &mut Duration,
    ) -> Over {
        if place.is_empty() {
            return Over::Relist;
        }
        let params = WatchParams::default().labels(&marks::selector(&self.owner)).timeout(WATCH_SECONDS);
        let events = match tokio::time::timeout(ANSWER, self.pods.watch(&params, place)).await {
            Ok(Ok(events)) => events,
            Ok(Err(KubeError::Api(status))) if status.code == 410 => return Over::Relist,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the pods of a cluster cannot be watched");
                return Over::Pause;
            }
            Err(_) => return Over::Pause,
        };
        let mut events = std::pin::pin!(events);
        let begin = Instant::now();
        let mut heard = false;
        loop {
            let event = match tokio::time::timeout(SILENCE, events.next()).await {
                Ok(Some(Ok(event))) => event,
                // The end of its time, or of a connection; what comes next is asked for from here.
                Ok(None) | Err(_) if heard || begin.elapsed() >= LONGEST_PAUSE => return Over::Resume,
                Ok(None) | Err(_) => return Over::Pause,
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "a watch broke off");
                    return Over::Pause;
                }
            };
            if !matches!(event, WatchEvent::Error(_)) {
                (heard, *pause) = (true, FIRST_PAUSE);
            }
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    advance(place, pod.metadata.resource_version.as_ref());
                    if let Some((id, pod)) = self.ours(pod) {
                        if let Err(error) = self.seen.put(id, Arc::clone(&pod)) {
                            tracing::warn!(%error, "a pod of a cluster is not followed");
                            return Over::Relist;
                        }
                        tell(Change { id, pod, is_gone: false });
                    }
                }
                WatchEvent::Deleted(pod) => {
                    advance(place, pod.metadata.resource_version.as_ref());
                    if let Some((id, pod)) = self.ours(pod) {
                        self.seen.remove(&id, pod.metadata.uid.as_deref());
                        tell(Change { id, pod, is_gone: true });
                    }
                }
                WatchEvent::Bookmark(mark) => advance(place, Some(&mark.metadata.resource_version)),
                WatchEvent::Error(status) if status.code == 410 => return Over::Relist,
                WatchEvent::Error(status) => {
                    tracing::warn!(code = status.code, "a watch was refused");
                    return Over::Pause;
                }
            }
        }
    }

    fn ours(&self, mut pod: Pod) -> Option<(SandboxId, Arc<Pod>)> {
        let id = marks::id_of(&self.owner, &pod.metadata)?;
        // Who set which field is about as long as the rest, and nobody reads it.
        pod.metadata.managed_fields = None;
        Some((id, Arc::new(pod)))
    }
}

fn advance(place: &mut String, version: Option<&String>) {
    if let Some(version) = version.filter(|version| !version.is_empty()) {
        place.clone_from(version);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    /// A cluster that gives these answers, one after the other, and then none any more.
    fn cluster(answers: Vec<String>) -> (Informer, mpsc::UnboundedReceiver<String>) {
        let (asked, questions) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let _ = asked.send(request.uri().query().unwrap_or_default().to_owned());
            async move {
                match answer {
                    Some(answer) => {
                        Ok::<_, std::convert::Infallible>(Response::new(Body::from(answer.into_bytes())))
                    }
                    None => std::future::pending().await,
                }
            }
        });
        let pods = Api::namespaced(Client::new(service, "default"), "default");
        let informer = Informer { pods, owner: "me".parse().unwrap(), seen: Arc::default() };
        (informer, questions)
    }

    fn pod(id: SandboxId, version: &str) -> Value {
        let labels = json!({ marks::OWNER: "me", marks::SANDBOX: id.bare() });
        json!({ "metadata": { "name": marks::name_of(id), "resourceVersion": version, "labels": labels } })
    }

    fn list(version: &str, pods: &[Value]) -> String {
        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": version }, "items": pods })
            .to_string()
    }

    fn event(kind: &str, object: &Value) -> String {
        format!("{}\n", json!({ "type": kind, "object": object }))
    }

    #[tokio::test]
    async fn a_list_that_is_too_long_fails_and_nothing_of_it_is_kept() {
        // Each answer is short enough, all of them are not.
        let pages = (1..=4).map(|place| {
            let mut pod = pod(SandboxId::from_bits(place), "1");
            pod["metadata"]["annotations"] = json!({ "long": "x".repeat(kept::MOST_BYTES / 4) });
            json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "continue": "further" }, "items": [pod] })
                .to_string()
        });
        let few = list("10", &[pod(SandboxId::from_bits(1), "9")]);
        let (informer, _questions) = cluster(pages.chain([few]).collect());
        assert!(informer.list().await.is_err());
        assert!(informer.seen.check().is_err() && informer.seen.all().is_empty());
        // It is well again when there is less.
        informer.list().await.unwrap();
        assert!(informer.seen.check().is_ok());
        assert_eq!(informer.seen.all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_for_which_there_is_no_room_is_not_told_of() {
        let (known, further) = (SandboxId::from_bits(1), SandboxId::from_bits(2));
        let (informer, mut questions) = cluster(vec![event("ADDED", &pod(further, "11"))]);
        let seen = Arc::clone(&informer.seen);
        seen.kept().put(known, Arc::default(), kept::MOST_BYTES).unwrap();
        let following = informer.follow("10".to_owned(), |change| panic!("{change:?}"));
        let hearing = async {
            assert!(questions.recv().await.unwrap().contains("resourceVersion=10"));
            assert!(!questions.recv().await.unwrap().contains("resourceVersion"), "listed anew");
        };
        tokio::select! {
            () = following => {}
            () = hearing => {}
        }
        assert!(seen.check().is_err());
        assert_eq!(seen.all().len(), 1);
    }

    #[tokio::test]
    async fn it_goes_on_where_it_was_and_begins_anew_where_that_is_forgotten() {
        let (first, second) = (SandboxId::from_bits(1), SandboxId::from_bits(2));
        let gone = json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "old" });
        let (informer, mut questions) = cluster(vec![
            list("10", &[pod(first, "9")]),
            // A connection that ends is made again from the last thing heard.
            event("ADDED", &pod(second, "11")),
            event(
                "BOOKMARK",
                &json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "resourceVersion": "20" } }),
            ),
            event("ERROR", &gone),
            list("50", &[pod(second, "40")]),
        ]);
        let seen = Arc::clone(&informer.seen);
        let (place, changes) = informer.list().await.unwrap();
        assert_eq!((place.as_str(), changes.len()), ("10", 1));
        let (tell, mut told) = mpsc::unbounded_channel();
        let following = informer.follow(place, move |change| {
            let _ = tell.send((change.id, !change.is_gone));
        });
        let hearing = async {
            assert_eq!(told.recv().await, Some((second, true)));
            assert_eq!(told.recv().await, Some((second, true)), "listed anew");
            assert_eq!(told.recv().await, Some((first, false)), "gone meanwhile");
            let mut asked = Vec::new();
            for _ in 0..6 {
                asked.push(questions.recv().await.unwrap());
            }
            let from = |question: &String| {
                let version = question.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
                version.unwrap_or("list").to_owned()
            };
            let from: Vec<_> = asked.iter().map(from).collect();
            assert_eq!(from, ["list", "10", "11", "20", "list", "50"]);
        };
        tokio::select! {
            () = following => {}
            () = hearing => {}
        }
        assert_eq!(seen.all().len(), 1);
    }
}
