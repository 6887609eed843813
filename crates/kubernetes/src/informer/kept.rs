//! Pods that are kept in memory, which a cluster cannot fill: there are so many of them, and together they are so long.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use sandstorm_types::SandboxId;

const MOST_PODS: usize = 50_000;
/// Tests need not fill memory to meet it.
pub(super) const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// There is no room for another pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

#[derive(Debug, Default)]
pub(super) struct Kept {
    pods: HashMap<SandboxId, (Arc<Pod>, usize)>,
    bytes: usize,
}

impl Kept {
    pub(super) fn get(&self, id: &SandboxId) -> Option<&Arc<Pod>> {
        self.pods.get(id).map(|(pod, _)| pod)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SandboxId, Arc<Pod>)> {
        self.pods.iter().map(|(id, (pod, _))| (*id, Arc::clone(pod)))
    }

    /// Keeps a pod of this length in place of an earlier one of the sandbox, which stays where there is no room.
    pub(super) fn put(&mut self, id: SandboxId, pod: Arc<Pod>, length: usize) -> Result<(), Full> {
        let before = self.pods.get(&id).map(|(_, length)| *length);
        let bytes = (self.bytes - before.unwrap_or(0)).saturating_add(length);
        if bytes > MOST_BYTES || (before.is_none() && self.pods.len() >= MOST_PODS) {
            return Err(Full);
        }
        self.pods.insert(id, (pod, length));
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn remove(&mut self, id: &SandboxId) {
        if let Some((_, length)) = self.pods.remove(id) {
            self.bytes -= length;
        }
    }
}

/// How long a pod is when it is written down.
pub(super) fn length_of(pod: &Pod) -> usize {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, pod).map_or(usize::MAX, |()| length.0)
}

struct Length(usize);

impl Write for Length {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(piece.len());
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_pods() {
        let (mut kept, pod) = (Kept::default(), Arc::new(Pod::default()));
        for id in (1..).map(SandboxId::from_bits).take(MOST_PODS) {
            kept.put(id, Arc::clone(&pod), 1).unwrap();
        }
        let (known, further) = (SandboxId::from_bits(1), SandboxId::from_bits(0));
        assert_eq!(kept.put(further, Arc::clone(&pod), 1), Err(Full));
        assert_eq!(kept.put(known, Arc::clone(&pod), 1), Ok(()));
        kept.remove(&known);
        assert_eq!(kept.put(further, pod, 1), Ok(()));
        assert_eq!((kept.iter().count(), kept.bytes), (MOST_PODS, MOST_PODS));
    }

    #[test]
    fn there_is_room_for_so_many_bytes() {
        let (mut kept, pod) = (Kept::default(), Arc::new(Pod::default()));
        let (first, second) = (SandboxId::from_bits(1), SandboxId::from_bits(2));
        kept.put(first, Arc::clone(&pod), MOST_BYTES).unwrap();
        assert_eq!(kept.put(second, Arc::clone(&pod), 1), Err(Full));
        assert_eq!(kept.put(second, Arc::clone(&pod), usize::MAX), Err(Full));
        assert!(kept.get(&second).is_none());
        // It has become shorter.
        kept.put(first, Arc::clone(&pod), MOST_BYTES - 1).unwrap();
        assert_eq!(kept.put(second, pod, 1), Ok(()));
    }

    #[test]
    fn all_of_a_pod_counts() {
        let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}"#;
        let pod: Pod = serde_json::from_str(text).unwrap();
        assert_eq!(length_of(&pod), text.len());
    }
}
