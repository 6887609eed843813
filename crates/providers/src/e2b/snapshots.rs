//! Sandboxes saved there. To them a saved sandbox is a template with a name; ours is made of our mark and our id, and is all
//! that is needed to find it again. Only files are saved: what runs would go on there without anybody who knows of it.

use std::sync::Arc;

use sandstorm_provider::{Error, OpContext, Result, Snapshot};
use sandstorm_types::{ErrorKind, Retry, SandboxId, SnapshotId, Template};
use serde::Deserialize;

use super::cloud::Cloud;
use super::config::template_name;
use super::error::{of, senseless};

/// What they call a saved sandbox: `team/name:tag`, or an id instead of a name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct TheirSnapshot(String);

impl TheirSnapshot {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TheirSnapshot {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let plain =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b':');
        let fine = (1..=256).contains(&text.len()) && text.bytes().all(plain) && !text.contains("..");
        if fine { Ok(Self(text)) } else { Err("a snapshot's id is 1 to 256 plain characters") }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Saved {
    #[serde(rename = "snapshotID")]
    id: TheirSnapshot,
    #[serde(default)]
    names: Vec<String>,
}

impl Saved {
    /// Whether it has this name, wherever they put it and whatever they put behind it.
    fn is_called(&self, name: &str) -> bool {
        let bare = |full: &str| {
            let behind_team = full.rsplit('/').next().unwrap_or_default();
            behind_team.split(':').next() == Some(name)
        };
        self.names.iter().map(String::as_str).chain([self.id.as_str()]).any(bare)
    }
}

impl Cloud {
    /// What a snapshot of ours is called there.
    fn name_of(&self, id: &SnapshotId) -> String {
        format!("sandstorm-{}-{}", self.owner, id.bare())
    }

    /// What they have of a snapshot of ours: one, unless something went wrong.
    async fn saved(&self, id: &SnapshotId) -> Result<Vec<Saved>> {
        let name = self.name_of(id);
        let mut found = self.client.saved(&name).await.map_err(of)?;
        // Whatever else they show is not ours.
        found.retain(|saved| saved.is_called(&name));
        Ok(found)
    }

    /// What is asked of them is waited for to its end, whoever gave up: only then it is known what to remove.
    pub(super) async fn snapshot(
        self: &Arc<Self>,
        cx: &OpContext,
        sandbox: &SandboxId,
        id: SnapshotId,
    ) -> Result<Snapshot> {
        let Some(saving) = self.saving.begin(id) else { return Err(exists(&id)) };
        let (cloud, sandbox) = (Arc::clone(self), *sandbox);
        let work = async move |_gone| {
            let _saving = saving;
            cloud.save(&sandbox, &id).await
        };
        self.tasks.make(cx, "snapshot", work).await
    }

    async fn save(&self, sandbox: &SandboxId, id: &SnapshotId) -> Result<Snapshot> {
        let place = self.place(sandbox).await?;
        // To them a second one of a name takes the place of the first.
        if !self.saved(id).await?.is_empty() {
            return Err(exists(id));
        }
        let name = self.name_of(id);
        let saved = {
            // It stands still meanwhile, and connections to its programs may break.
            let _changing = place.change();
            let was_paused = place.is_paused();
            place.set_paused(true);
            let saved = self.client.save(place.theirs(), &name).await;
            place.set_paused(was_paused);
            saved
        };
        match saved {
            Ok(saved) if saved.is_called(&name) => Ok(Snapshot::default()),
            Ok(_) => Err(senseless("it saved something under another name")),
            Err(failure) => Err(self.refused(&place, failure).await),
        }
    }

    /// Absent is fine. That it is gone is looked up: an answer that says so is not enough.
    pub(super) async fn forget(&self, id: &SnapshotId) -> Result<()> {
        self.saving.settled(id).await;
        for saved in self.saved(id).await? {
            match self.client.forget(&saved.id).await {
                Ok(()) => {}
                Err(failure) if failure.is_not_found() => {}
                Err(failure) => return Err(of(failure).with("snapshot", id)),
            }
        }
        match self.saved(id).await?.is_empty() {
            true => Ok(()),
            false => {
                let message = "the service says that the snapshot is removed, but it is still there";
                Err(Error::new(ErrorKind::Provider, message).with_retry(Retry::Here).with("snapshot", id))
            }
        }
    }

    /// What they call what a sandbox is to be made from.
    pub(super) async fn template_there(&self, template: &Template) -> Result<String> {
        if let Template::Snapshot(id) = template {
            let missing =
                || Error::new(ErrorKind::NotFound, "there is no such snapshot").with("snapshot", id);
            let found = self.saved(id).await.map_err(Error::with_not_started)?;
            let saved = found.into_iter().next().ok_or_else(|| missing().with_not_started())?;
            return Ok(saved.id.0);
        }
        let known = template_name(template).and_then(|name| self.templates.get(name));
        Ok(known.map(|template| template.id.clone()).unwrap_or_default())
    }
}

fn exists(id: &SnapshotId) -> Error {
    Error::new(ErrorKind::Conflict, "there is such a snapshot already").with("snapshot", id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(id: &str, names: &[&str]) -> Saved {
        let id = id.to_owned().try_into().unwrap();
        Saved { id, names: names.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn a_name_is_found_behind_its_team_and_before_its_tag() {
        for found in [
            saved("team/mine:default", &["team/mine"]),
            saved("abc:default", &["team/mine:v2"]),
            saved("mine", &[]),
            saved("snap_x", &["mine"]),
        ] {
            assert!(found.is_called("mine"), "{found:?}");
        }
        for other in
            [saved("team/mine-2:default", &["team/mine2"]), saved("mine/other", &[]), saved("x:mine", &[])]
        {
            assert!(!other.is_called("mine"), "{other:?}");
        }
    }

    #[test]
    fn ids_have_a_form() {
        for bad in ["", "a b", "a\nb", "../x", "a?b", "a#b", "a%2fb", &"a".repeat(257)] {
            assert!(TheirSnapshot::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(TheirSnapshot::try_from("team-1/my_snap.1:default".to_owned()).is_ok());
    }
}
