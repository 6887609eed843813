//! A sandbox as they show it and as we do, and what is asked of them for one that we want.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sandstorm_provider::{CreateOptions, Result, Sandbox};
use sandstorm_types::{Limits, SandboxId, SandboxSpec, State, Template, Timestamp, Unmet, User};
use serde::Deserialize;
use serde_json::{Value, json};

use super::cloud::Cloud;
use super::config::{template_mark, template_name, template_named};
use super::error::senseless;
use super::network;
use crate::account::Owner;

/// Labels that we add, and that a server in between may add.
const OUR_LABELS: usize = 8;
const MOST_LABELS: usize = 64;
/// The oldest agent that has all that is used here: files as plain bodies came last.
const OLDEST_AGENT: (u64, u64, u64) = (0, 5, 7);

/// What they call a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct TheirId(String);

impl TheirId {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TheirId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fine = (1..=64).contains(&text.len()) && text.bytes().all(plain);
        fine.then(|| Self(text.to_owned())).ok_or("a sandbox's id is 1 to 64 lower-case letters and digits")
    }
}

impl TryFrom<String> for TheirId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        text.parse()
    }
}

impl fmt::Display for TheirId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What opens a sandbox.
#[derive(Deserialize)]
pub(super) struct Access {
    #[serde(rename = "sandboxID")]
    pub(super) id: TheirId,
    #[serde(rename = "envdAccessToken")]
    pub(super) token: Option<String>,
    pub(super) domain: Option<String>,
}

/// A sandbox in a list, or with more about it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    #[serde(rename = "sandboxID")]
    pub(super) id: TheirId,
    pub(super) started_at: String,
    #[serde(rename = "envdVersion")]
    pub(super) agent_version: String,
    pub(super) state: Condition,
    #[serde(default)]
    pub(super) metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envdAccessToken")]
    pub(super) token: Option<String>,
    #[serde(default)]
    pub(super) domain: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Condition {
    Running,
    Paused,
}

impl Listed {
    fn mark(&self, key: &str) -> Option<&str> {
        self.metadata.as_ref()?.get(key).map(String::as_str)
    }
}

/// Marks of ours on a sandbox there.
pub(super) struct Marks<'a>(pub(super) &'a Owner);

impl Marks<'_> {
    fn limits(&self) -> String {
        format!("sandstorm.limits/{}", self.0)
    }

    fn template(&self) -> String {
        format!("sandstorm.template/{}", self.0)
    }

    fn user(&self) -> String {
        format!("sandstorm.user/{}", self.0)
    }

    fn attempt(&self) -> String {
        format!("sandstorm.attempt/{}", self.0)
    }

    fn are_ours(&self, key: &str) -> bool {
        key == self.0.label().0
            || [self.0.id_key(), self.limits(), self.template(), self.user(), self.attempt()]
                .iter()
                .any(|mark| mark == key)
    }

    /// What we call a sandbox of theirs; `None` if it is not ours.
    pub(super) fn id(&self, theirs: &Listed) -> Option<SandboxId> {
        let (key, value) = self.0.label();
        let marked = theirs.mark(&key) == Some(value.as_str());
        theirs.mark(&self.0.id_key()).filter(|_| marked).and_then(|id| id.parse().ok())
    }

    /// Which attempt to make it it came of.
    pub(super) fn attempt_of<'a>(&self, theirs: &'a Listed) -> Option<&'a str> {
        theirs.mark(&self.attempt())
    }

    pub(super) fn limits_of(&self, theirs: &Listed) -> Result<Limits> {
        let text = theirs.mark(&self.limits()).unwrap_or_default();
        serde_json::from_str(text).map_err(|error| senseless("the limits cannot be read").with_source(error))
    }

    pub(super) fn user_of(&self, theirs: &Listed) -> User {
        match theirs.mark(&self.user()) {
            Some("root") => User::Root,
            _ => User::User,
        }
    }

    fn template_of(&self, theirs: &Listed) -> Result<Template> {
        let name = theirs.mark(&self.template());
        name.map(template_named).ok_or_else(|| senseless("the template cannot be read"))
    }

    /// The part of a list's query that finds what carries these, encoded as their clients do it: each word twice here,
    /// and the whole once more as part of an address.
    pub(super) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let encoded = |text: &str| {
            let once = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            utf8_percent_encode(&once, NON_ALPHANUMERIC).to_string()
        };
        let pairs = pairs.into_iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

impl Cloud {
    /// Every reason why such a sandbox cannot be had there.
    pub(super) fn unmet(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let mut unmet = self.can.unmet(spec);
        let template = template_name(&spec.template).and_then(|name| self.templates.get(name));
        match template {
            Some(template) => {
                let why = "the template that this one is there is smaller";
                let mut at_most = |feature: &str, wanted: String, offered: String, fits: bool| {
                    if !fits {
                        unmet.push(Unmet::new(feature, wanted, format!("at most {offered}"), why));
                    }
                };
                let (wanted, limits) = (&spec.limits, template);
                let (memory, disk) = (limits.memory, limits.disk);
                at_most("max_memory", wanted.memory.to_string(), memory.to_string(), wanted.memory <= memory);
                at_most("max_disk", wanted.disk.to_string(), disk.to_string(), wanted.disk <= disk);
                let cpus = |milli: u32| format!("{milli}m");
                let (asked, most) = (wanted.cpus.milli(), limits.cpus.milli());
                at_most("max_milli_cpus", cpus(asked), cpus(most), asked <= most);
            }
            None if matches!(spec.template, Template::Snapshot(_)) => {}
            None => {
                let name = template_name(&spec.template).unwrap_or_default().to_owned();
                let known = self.templates.keys().cloned().collect::<Vec<_>>().join(", ");
                let why = "no template there was configured for it";
                unmet.push(Unmet::new("template", name, known, why));
            }
        }
        if let Err(reason) = network::wish(&spec.network) {
            unmet.push(reason);
        }
        let room = MOST_LABELS - OUR_LABELS;
        let labels = spec.labels.iter().count();
        if labels > room {
            let why = "some labels are needed to find the sandbox again";
            unmet.push(Unmet::new("labels", labels.to_string(), format!("at most {room}"), why));
        }
        unmet
    }

    /// What is asked of them. Only for what is not unmet.
    pub(super) fn wanted(
        &self,
        spec: &SandboxSpec,
        opts: &CreateOptions,
        template: &str,
        attempt: &str,
    ) -> Value {
        let env: BTreeMap<_, _> = spec.env.iter().collect();
        let (internet, mut network) = network::wish(&spec.network).unwrap_or((false, json!({})));
        // Silence would open every port to the internet. Callers reach ports through us alone.
        network["allowPublicTraffic"] = false.into();
        json!({
            "templateID": template,
            "timeout": self.lease.as_secs(),
            "metadata": self.metadata(spec, opts.id, attempt),
            "envVars": env,
            // Should this side go away for good, what served one run is nobody's, and the rest waits for free.
            "autoPause": !opts.ephemeral,
            "allow_internet_access": internet,
            "network": network,
        })
    }

    /// The caller's labels and ours.
    fn metadata(&self, spec: &SandboxSpec, id: SandboxId, attempt: &str) -> BTreeMap<String, String> {
        let marks = Marks(&self.owner);
        let mut all: BTreeMap<_, _> =
            spec.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        all.extend([
            self.owner.label(),
            (self.owner.id_key(), id.to_string()),
            (marks.limits(), serde_json::to_string(&spec.limits).unwrap_or_default()),
            (marks.template(), template_mark(&spec.template)),
            (marks.attempt(), attempt.to_owned()),
        ]);
        if spec.user == User::Root {
            all.insert(marks.user(), "root".to_owned());
        }
        all
    }

    /// The sandbox as we show it.
    pub(super) fn seen(&self, ours: SandboxId, theirs: &Listed) -> Result<Sandbox> {
        let marks = Marks(&self.owner);
        let all = theirs.metadata.iter().flatten();
        let labels: BTreeMap<_, _> = all
            .filter(|(key, _)| !marks.are_ours(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        Ok(Sandbox {
            id: ours,
            state: match theirs.state {
                Condition::Running => State::Ready,
                Condition::Paused => State::Paused,
            },
            template: marks.template_of(theirs)?,
            limits: marks.limits_of(theirs)?,
            labels: labels.try_into().map_err(|_| senseless("the labels cannot be read"))?,
            isolation: self.can.isolation,
            walls: None,
            created_at: moment(&theirs.started_at)?,
            // Theirs is the end of our lease.
            expires_at: None,
            region: self.info.region.clone(),
            placement: None,
        })
    }
}

/// A moment as they write it: any part of a second, in UTC.
pub(super) fn moment(text: &str) -> Result<SystemTime> {
    let wrong = || senseless("a moment cannot be read");
    let (date, rest) = text.split_at_checked(19).ok_or_else(wrong)?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if !matches!(zone, "Z" | "z" | "+00:00") {
        return Err(wrong());
    }
    let fraction: String = rest.chars().skip(1).take_while(char::is_ascii_digit).take(3).collect();
    let at: Timestamp = format!("{date}.{fraction:0<3}Z").parse().map_err(|_| wrong())?;
    let millis = u64::try_from(at.millis()).map_err(|_| wrong())?;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

/// Whether an agent has all that is used here.
pub(super) fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    match (next(), next(), next()) {
        (Some(major), Some(minor), Some(patch)) => (major, minor, patch) >= OLDEST_AGENT,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{Labels, NetworkPolicy};

    use super::super::config::Config;
    use super::*;
    use crate::account::ApiKey;

    #[test]
    fn what_is_made_is_closed_to_visitors() {
        let config = Config::new("e2b", ApiKey::new("e2b_x"), "me".parse().unwrap());
        let cloud = Cloud::new(config).unwrap();
        // Also where our own callers were promised public ports: they reach those through us.
        let labels = Labels::default().with_public_ports(true).unwrap();
        for network in [NetworkPolicy::None, NetworkPolicy::Open] {
            let spec = SandboxSpec { network, labels: labels.clone(), ..SandboxSpec::default() };
            let asked = cloud.wanted(&spec, &CreateOptions::default(), "base", "attempt");
            assert_eq!(asked["network"]["allowPublicTraffic"], false, "{asked}");
        }
    }

    #[test]
    fn ids_and_versions_have_a_form() {
        for bad in ["", "A", "a-b", "../x", "a/b", "a.b", &"a".repeat(65)] {
            assert!(bad.parse::<TheirId>().is_err(), "{bad}");
        }
        assert!("i0abc9".parse::<TheirId>().is_ok());
        for (version, enough) in [
            ("0.5.7", true),
            ("0.6.13", true),
            ("1.0.0", true),
            ("0.5.6", false),
            ("x", false),
            ("0.5", false),
        ] {
            assert_eq!(is_new_enough(version), enough, "{version}");
        }
    }

    #[test]
    fn lists_are_asked_for_as_their_clients_do() {
        // The last of three encodings is that of the address.
        assert_eq!(Marks::query([("k", "v v"), ("a/b", "c=d")]), "k=v%2520v&a%252Fb=c%253Dd");
    }

    #[test]
    fn moments_are_in_utc() {
        let second = SystemTime::UNIX_EPOCH + Duration::from_millis(1234);
        for text in ["1970-01-01T00:00:01.234567Z", "1970-01-01T00:00:01.234+00:00"] {
            assert_eq!(moment(text).unwrap(), second);
        }
        for bad in
            ["", "yesterday", "1970-01-01T00:00:01+02:00", "1969-01-01T00:00:00Z", "1970-01-01T00:00:0ü1Z"]
        {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_kept_on_a_sandbox_fits_into_its_labels() {
        let owner: Owner = "m".repeat(32).parse().unwrap();
        let marks = Marks(&owner);
        let largest = Limits { inodes: u64::MAX, ..Limits::default() };
        let text = serde_json::to_string(&largest).unwrap();
        let all =
            [(marks.limits(), text), (marks.template(), String::new()), (marks.attempt(), String::new())];
        assert!(Labels::try_from(BTreeMap::from(all)).is_ok());
    }
}
