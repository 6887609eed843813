//! The warm interpreters that the launcher was started with: which one a program begins in, and which ones fail.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_jail::launcher::ZygoteConfig;
use sandstorm_provider::Expected;

/// After so many failures in a row an owner's zygote is left alone for a while.
const PATIENCE: u32 = 3;
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// The launcher lets go of a zygote that nobody used for longer than this.
const STAYS_WARM: Duration = Duration::from_secs(300);
/// Most zygotes of all owners that are remembered, as warm or as failing.
const REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Zygotes {
    all: Vec<ZygoteConfig>,
    record: Mutex<Record>,
    /// When a fork of each was last to be had, by its name and owner.
    warm: Mutex<HashMap<(String, String), Instant>>,
}

/// What came of asking for forks.
#[derive(Debug, Default)]
struct Record {
    /// By zygote and owner: each owner has a zygote process of its own, so its failures say nothing about another owner's.
    troubles: HashMap<(String, String), Trouble>,
    /// The zygotes that forked for any owner since this process began: this host can have them.
    proven: HashSet<String>,
}

#[derive(Debug)]
struct Trouble {
    /// In a row.
    failures: u32,
    last: Instant,
}

impl Trouble {
    fn is_left_alone(&self) -> bool {
        self.failures >= PATIENCE && self.last.elapsed() < LEFT_ALONE
    }
}

impl Zygotes {
    pub(crate) fn new(all: Vec<ZygoteConfig>) -> Self {
        Self { all, record: Mutex::default(), warm: Mutex::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|zygote| zygote.name.as_str())
    }

    /// The zygote to fork for a program of this owner that was foretold: one that has loaded what the program imports, else
    /// the leanest. A fork of one that has loaded much costs more, whether the program needs that or not.
    pub(crate) fn choose(&self, expected: &Expected, owner: &str) -> Option<&ZygoteConfig> {
        let working = self.working(owner);
        let fitting = || working.iter().copied().filter(|zygote| zygote.interpreter == expected.interpreter);
        let loaded = |zygote: &ZygoteConfig| {
            zygote.preload.iter().filter(|module| expected.modules.contains(module)).count()
        };
        let useful = fitting().filter(|zygote| loaded(zygote) > 0).max_by_key(|zygote| loaded(zygote));
        useful.or_else(|| fitting().min_by_key(|zygote| zygote.preload.len()))
    }

    /// What a program has to be like to begin in a fork of that zygote.
    pub(crate) fn expectation(&self, name: &str) -> Option<Expected> {
        let zygote = self.all.iter().find(|zygote| zygote.name == name)?;
        Some(Expected { interpreter: zygote.interpreter.clone(), modules: zygote.preload.clone() })
    }

    /// The zygote for sandboxes of this owner of which it is not known yet what they run. What runs there lives long, and
    /// imports what it needs long after it began: the one that has loaded most.
    pub(crate) fn for_anything(&self, owner: &str) -> Option<&ZygoteConfig> {
        self.working(owner).into_iter().max_by_key(|zygote| zygote.preload.len())
    }

    /// The zygotes that this server promises to all owners. One owner's failures do not take that back, unless the zygote
    /// never forked for any owner: then this host cannot have it.
    pub(crate) fn promised(&self) -> Vec<&ZygoteConfig> {
        let record = self.record();
        let given_up = |name: &str| {
            let mut troubles = record.troubles.iter();
            troubles.any(|((zygote, _), trouble)| zygote == name && trouble.failures >= PATIENCE)
        };
        let is_promised = |name: &str| record.proven.contains(name) || !given_up(name);
        self.all.iter().filter(|zygote| is_promised(&zygote.name)).collect()
    }

    /// The zygote to ask where that one was chosen: another one of its interpreter, if only that is promised.
    pub(crate) fn in_place_of<'a>(&'a self, name: &'a str) -> &'a str {
        let Some(chosen) = self.all.iter().find(|zygote| zygote.name == name) else { return name };
        let mut promised = self.promised();
        promised.retain(|zygote| zygote.interpreter == chosen.interpreter);
        if promised.iter().any(|zygote| zygote.name == name) {
            return name;
        }
        let richest = promised.into_iter().max_by_key(|zygote| zygote.preload.len());
        richest.map_or(name, |zygote| zygote.name.as_str())
    }

    /// Those that are not left alone for this owner.
    fn working(&self, owner: &str) -> Vec<&ZygoteConfig> {
        let record = self.record();
        let left_alone = |name: &str| {
            let mut troubles = record.troubles.iter().filter(|((_, whose), _)| whose == owner);
            troubles.any(|((zygote, _), trouble)| zygote == name && trouble.is_left_alone())
        };
        self.all.iter().filter(|zygote| !left_alone(&zygote.name)).collect()
    }

    /// A fork of it waits.
    pub(crate) fn worked(&self, name: &str, owner: &str) {
        let whose = (name.to_owned(), owner.to_owned());
        let mut record = self.record();
        record.troubles.remove(&whose);
        if !record.proven.contains(name) {
            record.proven.insert(name.to_owned());
        }
        drop(record);
        let now = Instant::now();
        let mut warm = self.warm();
        if warm.len() >= REMEMBERED {
            warm.retain(|_, seen| now.saturating_duration_since(*seen) < STAYS_WARM);
        }
        if warm.len() < REMEMBERED {
            warm.insert(whose, now);
        }
    }

    /// Whether a fork is to be had at once: an owner's first one waits until the zygote itself is warm, which may take
    /// longer than the program would.
    pub(crate) fn is_warm(&self, name: &str, owner: &str) -> bool {
        let seen = self.warm().get(&(name.to_owned(), owner.to_owned())).copied();
        seen.is_some_and(|seen| seen.elapsed() < STAYS_WARM)
    }

    fn warm(&self) -> MutexGuard<'_, HashMap<(String, String), Instant>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It did not fork for this owner, by no fault of the jail that the fork was for.
    pub(crate) fn failed(&self, name: &str, owner: &str, why: &str) {
        let whose = (name.to_owned(), owner.to_owned());
        let now = Instant::now();
        let mut record = self.record();
        let troubles = &mut record.troubles;
        if troubles.len() >= REMEMBERED {
            troubles.retain(|_, trouble| now.saturating_duration_since(trouble.last) < LEFT_ALONE);
        }
        if troubles.len() >= REMEMBERED && !troubles.contains_key(&whose) {
            return;
        }
        let trouble = troubles.entry(whose).or_insert(Trouble { failures: 0, last: now });
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.last = now;
        if trouble.failures >= PATIENCE {
            tracing::warn!(zygote = name, owner, why, "an owner has no warm interpreters for now");
        } else {
            tracing::debug!(zygote = name, owner, why, "a warm interpreter was not to be had");
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zygote(name: &str, preload: &[&str]) -> ZygoteConfig {
        ZygoteConfig {
            name: name.to_owned(),
            interpreter: "/usr/bin/python3".into(),
            preload: preload.iter().map(|module| (*module).to_owned()).collect(),
            known: Vec::new(),
        }
    }

    fn expected(interpreter: &str, modules: &[&str]) -> Expected {
        let modules = modules.iter().map(|module| (*module).to_owned()).collect();
        Expected { interpreter: interpreter.into(), modules }
    }

    #[test]
    fn the_fat_one_serves_only_those_who_need_it() {
        let zygotes = Zygotes::new(vec![zygote("fat", &["numpy", "pandas"]), zygote("lean", &[])]);
        let chosen = |modules: &[&str]| {
            let zygote = zygotes.choose(&expected("/usr/bin/python3", modules), "me");
            zygote.map(|zygote| zygote.name.as_str())
        };
        assert_eq!(chosen(&[]), Some("lean"));
        assert_eq!(chosen(&["json", "os"]), Some("lean"));
        assert_eq!(chosen(&["os", "numpy"]), Some("fat"));
        assert!(zygotes.choose(&expected("/usr/bin/node", &[]), "me").is_none());
        assert_eq!(zygotes.for_anything("me").map(|zygote| zygote.name.as_str()), Some("fat"));
        assert!(Zygotes::default().for_anything("me").is_none());
        for name in ["fat", "lean"] {
            let expected = zygotes.expectation(name).unwrap();
            assert_eq!(zygotes.choose(&expected, "me").map(|zygote| zygote.name.as_str()), Some(name));
        }
    }

    #[test]
    fn one_that_fails_again_and_again_is_left_alone() {
        let zygotes = Zygotes::new(vec![zygote("lean", &[])]);
        let wanted = expected("/usr/bin/python3", &[]);
        for _ in 0..2 {
            zygotes.failed("lean", "me", "no rights");
        }
        assert!(!zygotes.is_warm("lean", "me"));
        zygotes.worked("lean", "me");
        assert!(zygotes.is_warm("lean", "me") && !zygotes.is_warm("lean", "you"));
        for _ in 0..2 {
            zygotes.failed("lean", "me", "no rights");
            assert!(zygotes.choose(&wanted, "me").is_some());
        }
        zygotes.failed("lean", "me", "no rights");
        assert!(zygotes.choose(&wanted, "me").is_none() && zygotes.for_anything("me").is_none());
    }

    #[test]
    fn what_fails_for_one_owner_is_no_other_owners_matter() {
        let zygotes = Zygotes::new(vec![zygote("lean", &[])]);
        let wanted = expected("/usr/bin/python3", &[]);
        zygotes.worked("lean", "you");
        for _ in 0..10 {
            zygotes.failed("lean", "me", "no room");
        }
        assert!(zygotes.choose(&wanted, "me").is_none() && zygotes.for_anything("me").is_none());
        assert!(zygotes.choose(&wanted, "you").is_some() && zygotes.for_anything("you").is_some());
        assert!(zygotes.choose(&wanted, "new").is_some());
        assert_eq!(zygotes.promised().len(), 1, "it forks here");
        // Nor does another owner's success end it.
        zygotes.worked("lean", "you");
        assert!(zygotes.choose(&wanted, "me").is_none());
        zygotes.worked("lean", "me");
        assert!(zygotes.choose(&wanted, "me").is_some());
    }

    #[test]
    fn one_that_never_forked_is_promised_until_it_failed_again_and_again() {
        let zygotes = Zygotes::new(vec![zygote("lean", &[]), zygote("fat", &["numpy"])]);
        for owner in ["me", "you"] {
            zygotes.failed("lean", owner, "no rights");
            zygotes.failed("lean", owner, "no rights");
        }
        assert_eq!(zygotes.promised().len(), 2);
        zygotes.failed("lean", "me", "no rights");
        let promised: Vec<_> = zygotes.promised().into_iter().map(|zygote| zygote.name.as_str()).collect();
        assert_eq!(promised, ["fat"]);
        assert_eq!((zygotes.in_place_of("lean"), zygotes.in_place_of("fat")), ("fat", "fat"));
        let wanted = expected("/usr/bin/python3", &[]);
        assert_eq!(zygotes.choose(&wanted, "you").map(|zygote| zygote.name.as_str()), Some("lean"));
        zygotes.worked("lean", "you");
        assert_eq!((zygotes.promised().len(), zygotes.in_place_of("lean")), (2, "lean"));
    }

    #[test]
    fn owners_without_number_are_not_remembered() {
        let zygotes = Zygotes::new(vec![zygote("lean", &[])]);
        for owner in 0..REMEMBERED + 10 {
            zygotes.failed("lean", &owner.to_string(), "no room");
        }
        assert_eq!(zygotes.record().troubles.len(), REMEMBERED);
    }
}
