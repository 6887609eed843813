//! The warm interpreters that the launcher was started with: which one a program begins in, and which ones fail.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_jail::launcher::ZygoteConfig;
use sandstorm_provider::Expected;

/// After so many failures in a row a zygote is left alone for a while.
const PATIENCE: u32 = 3;
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// The launcher lets go of a zygote that nobody used for longer than this.
const STAYS_WARM: Duration = Duration::from_secs(300);
/// Most zygotes of all owners that are remembered as warm.
const REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Zygotes {
    all: Vec<ZygoteConfig>,
    troubles: Mutex<HashMap<String, Trouble>>,
    /// When a fork of each was last to be had, by its name and owner.
    warm: Mutex<HashMap<(String, String), Instant>>,
}

#[derive(Debug, Default)]
struct Trouble {
    failures: u32,
    until: Option<Instant>,
}

impl Zygotes {
    pub(crate) fn new(all: Vec<ZygoteConfig>) -> Self {
        Self { all, troubles: Mutex::default(), warm: Mutex::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|zygote| zygote.name.as_str())
    }

    /// The zygote to fork for a program that was foretold: one that has loaded what the program imports, else the leanest.
    /// A fork of one that has loaded much costs more, whether the program needs that or not.
    pub(crate) fn choose(&self, expected: &Expected) -> Option<&ZygoteConfig> {
        let fitting = || self.working().filter(|zygote| zygote.interpreter == expected.interpreter);
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

    /// The zygote for sandboxes of which nobody knows yet what they run. What runs there lives long, and imports what it
    /// needs long after it began: the one that has loaded most.
    pub(crate) fn for_anything(&self) -> Option<&ZygoteConfig> {
        self.working().max_by_key(|zygote| zygote.preload.len())
    }

    /// Whether forks of it are to be had, as far as anybody knows.
    pub(crate) fn works(&self, name: &str) -> bool {
        self.working().any(|zygote| zygote.name == name)
    }

    pub(crate) fn any_works(&self) -> bool {
        self.working().next().is_some()
    }

    fn working(&self) -> impl Iterator<Item = &ZygoteConfig> {
        let troubles = self.troubles();
        let now = Instant::now();
        let broken: Vec<String> = troubles
            .iter()
            .filter(|(_, trouble)| trouble.until.is_some_and(|until| now < until))
            .map(|(name, _)| name.clone())
            .collect();
        drop(troubles);
        self.all.iter().filter(move |zygote| !broken.contains(&zygote.name))
    }

    /// A fork of it waits.
    pub(crate) fn worked(&self, name: &str, owner: &str) {
        self.troubles().remove(name);
        let now = Instant::now();
        let mut warm = self.warm();
        if warm.len() >= REMEMBERED {
            warm.retain(|_, seen| now.saturating_duration_since(*seen) < STAYS_WARM);
        }
        if warm.len() < REMEMBERED {
            warm.insert((name.to_owned(), owner.to_owned()), now);
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

    /// No fork of it was to be had.
    pub(crate) fn failed(&self, name: &str, why: &str) {
        let mut troubles = self.troubles();
        let trouble = troubles.entry(name.to_owned()).or_default();
        trouble.failures += 1;
        if trouble.failures >= PATIENCE {
            trouble.until = Some(Instant::now() + LEFT_ALONE);
            tracing::warn!(
                zygote = name,
                why,
                "there are no warm interpreters for now: programs are started cold"
            );
        } else {
            tracing::debug!(zygote = name, why, "a warm interpreter was not to be had");
        }
    }

    fn troubles(&self) -> MutexGuard<'_, HashMap<String, Trouble>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
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
            zygotes.choose(&expected("/usr/bin/python3", modules)).map(|zygote| zygote.name.as_str())
        };
        assert_eq!(chosen(&[]), Some("lean"));
        assert_eq!(chosen(&["json", "os"]), Some("lean"));
        assert_eq!(chosen(&["os", "numpy"]), Some("fat"));
        assert!(zygotes.choose(&expected("/usr/bin/node", &[])).is_none());
        assert_eq!(zygotes.for_anything().map(|zygote| zygote.name.as_str()), Some("fat"));
        assert!(Zygotes::default().for_anything().is_none());
        for name in ["fat", "lean"] {
            let expected = zygotes.expectation(name).unwrap();
            assert_eq!(zygotes.choose(&expected).map(|zygote| zygote.name.as_str()), Some(name));
        }
    }

    #[test]
    fn one_that_fails_again_and_again_is_left_alone() {
        let zygotes = Zygotes::new(vec![zygote("lean", &[])]);
        let wanted = expected("/usr/bin/python3", &[]);
        for _ in 0..2 {
            zygotes.failed("lean", "no rights");
        }
        assert!(!zygotes.is_warm("lean", "me"));
        zygotes.worked("lean", "me");
        assert!(zygotes.is_warm("lean", "me") && !zygotes.is_warm("lean", "you"));
        for _ in 0..2 {
            zygotes.failed("lean", "no rights");
            assert!(zygotes.choose(&wanted).is_some());
        }
        zygotes.failed("lean", "no rights");
        assert!(zygotes.choose(&wanted).is_none() && zygotes.for_anything().is_none());
    }
}
