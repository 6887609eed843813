//! The zygotes of a launcher: which there are, who they belong to, who waits for them, when they end.
//!
//! A zygote forks for one owner only, because all its forks have one address layout and one hash seed. It is started when
//! somebody first asks for it. After a while it is *retired*: it forks for nobody new, only copies of guests that it has,
//! and ends with the last of those.

mod zygote;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

pub(super) use zygote::{Heard, Visit, Zygote};

use super::watch::{Serial, Watcher};
use super::{Workshop, ZygoteConfig};
use crate::cgroup::Leaf;
use crate::error::JailError;
use crate::spec::JailLimits;

/// Zygotes that fork for everybody of their owner. Who comes then takes the place of who was not asked for longest.
const MOST: usize = 16;
/// All of them, with those that only live for their guests.
const MOST_WITH_RETIRED: usize = 48;
/// One that nobody asked for this long, and that has no guests, ends.
const IDLE: Duration = Duration::from_secs(600);
/// A zygote is retired at this age or after so many forks: what leaks from one guest about the layout of others is worth
/// nothing after that.
const OLD: Duration = Duration::from_secs(3600);
const FORKS: u64 = 20_000;
/// One that could not be started is not tried again before.
const TRY_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Zygotes {
    kinds: Vec<ZygoteConfig>,
    living: BTreeMap<Serial, Zygote>,
    /// Told to end, or found dead, and not collected yet.
    leaving: BTreeMap<Serial, Zygote>,
    /// Why one of that name did not come up for an owner, and when: what one of them does costs no other a zygote.
    failures: BTreeMap<(String, String), (Instant, String)>,
}

/// Why no guest interpreter can be had by this process on this host; `None`: nothing is in the way.
pub(super) fn obstacle(kinds: &[ZygoteConfig], may_mount: bool) -> Option<String> {
    if kinds.is_empty() {
        return Some("no zygote is configured".to_owned());
    }
    if !may_mount {
        return Some("only root can put an interpreter into a jail that exists".to_owned());
    }
    let unfit = |kind: &ZygoteConfig| crate::zygote::check(&kind.interpreter).err().map(|e| e.to_string());
    kinds.iter().map(unfit).min_by_key(Option::is_some).flatten()
}

impl Zygotes {
    pub(super) fn new(kinds: Vec<ZygoteConfig>) -> Self {
        Self { kinds, living: BTreeMap::new(), leaving: BTreeMap::new(), failures: BTreeMap::new() }
    }

    pub(super) fn get_mut(&mut self, serial: Serial) -> Option<&mut Zygote> {
        self.living.get_mut(&serial)
    }

    /// The one that forks for an owner, if there is one.
    pub(super) fn find(&self, name: &str, owner: &str) -> Option<Serial> {
        let fits = |zygote: &Zygote| zygote.is(name, owner) && !zygote.is_retired();
        self.living.iter().find(|(_, zygote)| fits(zygote)).map(|(serial, _)| *serial)
    }

    /// Whether that very process can still fork for this owner.
    pub(super) fn forks_for(&self, serial: Serial, owner: &str) -> bool {
        self.living.get(&serial).is_some_and(|zygote| zygote.is_owned_by(owner))
    }

    /// Starts one. Those that have to make room for it are retired.
    pub(super) fn start(
        &mut self,
        workshop: &mut Workshop,
        watcher: &Watcher,
        serial: Serial,
        name: &str,
        owner: &str,
    ) -> Result<(), JailError> {
        if let Some(why) = obstacle(&self.kinds, workshop.may_mount) {
            return Err(JailError::NoGuest(why));
        }
        let kind = self.kinds.iter().find(|kind| kind.name == name);
        let kind = kind.ok_or_else(|| JailError::NoGuest(format!("there is no zygote {name:?}")))?;
        self.failures.retain(|_, (when, _)| when.elapsed() < TRY_AGAIN);
        if let Some((_, why)) = self.failures.get(&(name.to_owned(), owner.to_owned())) {
            return Err(JailError::NoGuest(why.clone()));
        }
        let leaf = make_leaf(workshop, serial)?;
        let zygote = Zygote::start(kind, watcher, serial, owner, leaf, workshop.descriptor_limit)?;
        self.living.insert(serial, zygote);
        self.make_room();
        Ok(())
    }

    fn make_room(&mut self) {
        while self.living.values().filter(|zygote| !zygote.is_retired()).count() > MOST {
            let active = self.living.values_mut().filter(|zygote| !zygote.is_retired());
            let Some(oldest) = active.min_by_key(|zygote| zygote.last_used()) else { return };
            oldest.retire();
        }
        while self.living.len() > MOST_WITH_RETIRED {
            let done = |zygote: &Zygote| zygote.is_retired() && !zygote.is_wanted();
            let retired = self.living.iter().find(|(_, zygote)| done(zygote));
            let Some(serial) = retired.map(|(serial, _)| *serial) else { return };
            // Its guests live on; they cannot be copied any more.
            self.dismiss(serial);
        }
    }

    /// Sends one away. Who waited for it is returned.
    pub(super) fn dismiss(&mut self, serial: Serial) -> Vec<Visit> {
        let Some(mut zygote) = self.living.remove(&serial) else { return Vec::new() };
        let waiting = zygote.dismiss();
        self.leaving.insert(serial, zygote);
        waiting
    }

    /// Sends one away that did not do what it should.
    pub(super) fn fail(&mut self, serial: Serial, why: &str) -> Vec<Visit> {
        if let Some(zygote) = self.living.get(&serial).filter(|zygote| !zygote.is_warm()) {
            let whose = (zygote.name().to_owned(), zygote.owner().to_owned());
            self.failures.insert(whose, (Instant::now(), why.to_owned()));
        }
        self.dismiss(serial)
    }

    /// Collects one that left, if it is dead. `true`: there may be forks of it that nobody knows.
    pub(super) fn collect(&mut self, serial: Serial) -> bool {
        match self.leaving.get_mut(&serial).map(Zygote::collect) {
            Some(Some(may_have_lost)) => {
                self.leaving.remove(&serial);
                may_have_lost
            }
            _ => false,
        }
    }

    /// A guest of it is gone.
    pub(super) fn lose_guest(&mut self, serial: Serial) {
        if let Some(zygote) = self.living.get_mut(&serial) {
            zygote.lose_guest();
        }
    }

    /// Who went asked for what is in line.
    pub(super) fn forget_lines(&mut self) {
        self.living.values_mut().for_each(Zygote::forget_line);
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.living.values().filter_map(Zygote::next_look).min()
    }

    /// Retires and dismisses those whose time has come. Those that take too long are returned with a reason.
    pub(super) fn look_at_clocks(&mut self) -> Vec<(Serial, String)> {
        let now = Instant::now();
        let mut late = Vec::new();
        let mut leave = Vec::new();
        for (serial, zygote) in &mut self.living {
            if let Some(why) = zygote.is_late(now) {
                late.push((*serial, why));
            } else if zygote.has_no_reason_to_stay(now) {
                leave.push(*serial);
            }
        }
        for serial in leave {
            self.dismiss(serial);
        }
        late
    }

    /// All of them have to go; nobody waits for them here.
    pub(super) fn kill_all(&mut self) {
        let serials: Vec<Serial> = self.living.keys().copied().collect();
        for serial in serials {
            self.dismiss(serial);
        }
    }

    /// After everything was collected: what they had on the host.
    pub(super) fn clear(&mut self) {
        for zygote in std::mem::take(&mut self.leaving).into_values() {
            zygote.remove_leaf();
        }
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.living.values().chain(self.leaving.values()).map(Zygote::pid)
    }
}

/// The groups of a zygote. Their name cannot be that of a jail.
fn make_leaf(workshop: &mut Workshop, serial: Serial) -> Result<Option<Leaf>, JailError> {
    if !workshop.may_group() {
        return Ok(None);
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let limits = JailLimits {
        memory_bytes: crate::zygote::MEMORY,
        // Itself, and forks on their way to their jails.
        processes: 64,
        cpu_milli: u64::try_from(processors).unwrap_or(1) * 1000,
        cpu_time: None,
        open_files: 0,
    };
    let parent = workshop.group_parent()?;
    let leaf = Leaf::create(&workshop.hierarchies, &parent, &format!("zygote_{serial}"), &limits, 0);
    // Until it is warm: among many busy jails that would take a quarter of a minute.
    leaf.prefer(true);
    Ok(Some(leaf))
}

/// What went wrong, in words.
pub(super) fn words(step: &str, errno: i32) -> String {
    format!("the step '{step}' failed: {}", io::Error::from_raw_os_error(errno))
}
