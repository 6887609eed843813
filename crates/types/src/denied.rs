//! What a program wanted to reach on the network and did not, as results tell it.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// Most entries of one list; a last one counts what is beyond them.
const MOST: usize = 32;
/// Longest text of an entry, in characters: longer than any host name.
const MOST_TEXT: usize = 256;

/// The reason of the entry that counts what a list has no room for.
const MORE: &str = "more";
/// The reason that a list of what may be reached is to blame for.
const NOT_ALLOWED: &str = "not_allowed";
/// Reasons that are no decision against the program.
const FAILED: [&str; 2] = ["unresolved", "unreachable"];
/// Ports of a rule that names none.
const USUAL: [u16; 2] = [80, 443];

/// Attempts of one kind that did not get through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// A name or an address; `None`: what the program sent is neither, or not known.
    pub host: Option<String>,
    /// `None` for a lookup.
    pub port: Option<u16>,
    pub protocol: DeniedProtocol,
    /// A word for programs, such as `not_allowed`.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// How often.
    pub count: u64,
    /// When for the first time.
    pub at: Timestamp,
}

/// What a program tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeniedProtocol {
    /// A connection.
    Tcp,
    /// A lookup of a name.
    Dns,
}

impl Denied {
    /// The destination as a person writes it: `example.com:443`, `[2001:db8::1]:80`.
    pub fn target(&self) -> Option<String> {
        let host = self.host.as_deref()?;
        Some(match self.port {
            Some(port) if host.contains(':') => format!("[{host}]:{port}"),
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        })
    }

    /// One sentence for people, without its full stop.
    pub fn sentence(&self) -> String {
        let message = &self.message;
        if self.reason == MORE {
            return format!("{} more: {message}", self.count);
        }
        let what = match (self.protocol, self.target()) {
            (DeniedProtocol::Tcp, Some(target)) => format!("the connection to {target}"),
            (DeniedProtocol::Tcp, None) => "a connection".to_owned(),
            (DeniedProtocol::Dns, Some(name)) => format!("the lookup of {name}"),
            (DeniedProtocol::Dns, None) => "a lookup".to_owned(),
        };
        let how = if FAILED.contains(&self.reason.as_str()) { "failed" } else { "was refused" };
        format!("{what} {how}: {message}")
    }

    /// The rule that would let it through, where only the list of what may be reached stands in the way.
    pub fn rule(&self) -> Option<String> {
        let host = self.host.as_deref().filter(|_| self.reason == NOT_ALLOWED)?;
        let host = match host.parse::<std::net::IpAddr>() {
            Ok(address) if address.is_ipv6() => format!("ip:[{address}]"),
            Ok(address) => format!("ip:{address}"),
            Err(_) => host.to_owned(),
        };
        Some(match self.port.filter(|port| !USUAL.contains(port)) {
            Some(port) => format!("{host}:{port}"),
            None => host,
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.port, self.protocol, &self.reason, &self.host)
            == (other.port, other.protocol, &other.reason, &other.host)
    }
}

/// A list of bounded length and of bounded texts, in which attempts of one kind are one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeniedList(Vec<Denied>);

impl DeniedList {
    pub fn add(&mut self, one: Denied) {
        if let Some(known) = self.0.iter_mut().find(|known| known.is_like(&one)) {
            known.count = known.count.saturating_add(one.count);
            return;
        }
        if self.0.len() < MOST {
            self.0.push(one.bounded());
            return;
        }
        match self.0.get_mut(MOST) {
            Some(more) => more.count = more.count.saturating_add(one.count),
            None => self.0.push(Denied {
                host: None,
                port: None,
                protocol: one.protocol,
                reason: MORE.to_owned(),
                message: "further attempts are not listed one by one".to_owned(),
                count: one.count,
                at: one.at,
            }),
        }
    }

    pub fn into_vec(self) -> Vec<Denied> {
        self.0
    }
}

impl FromIterator<Denied> for DeniedList {
    fn from_iter<I: IntoIterator<Item = Denied>>(all: I) -> Self {
        let mut list = Self::default();
        all.into_iter().for_each(|one| list.add(one));
        list
    }
}

impl Denied {
    fn bounded(self) -> Self {
        Self {
            host: self.host.map(bounded),
            reason: bounded(self.reason),
            message: bounded(self.message),
            ..self
        }
    }
}

fn bounded(text: String) -> String {
    let plain = text.chars().count() <= MOST_TEXT && !text.chars().any(char::is_control);
    if plain { text } else { text.chars().filter(|c| !c.is_control()).take(MOST_TEXT).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(host: &str, port: Option<u16>, reason: &str) -> Denied {
        Denied {
            host: Some(host.to_owned()),
            port,
            protocol: if port.is_some() { DeniedProtocol::Tcp } else { DeniedProtocol::Dns },
            reason: reason.to_owned(),
            message: "why".to_owned(),
            count: 1,
            at: Timestamp::from_millis(7),
        }
    }

    #[test]
    fn attempts_of_one_kind_are_one_entry_and_a_flood_is_a_number() {
        let mut list = DeniedList::default();
        for round in 0..3 {
            for index in 0..100 {
                let at = Timestamp::from_millis(round);
                list.add(Denied { at, ..denied(&format!("n{index}.test"), Some(443), "not_allowed") });
            }
        }
        let all = list.into_vec();
        assert_eq!(all.len(), MOST + 1);
        assert!(all[..MOST].iter().all(|one| one.count == 3 && one.at == Timestamp::from_millis(0)));
        let last = &all[MOST];
        assert_eq!((last.host.as_deref(), last.reason.as_str(), last.count), (None, MORE, 3 * 68));
        assert_eq!(last.sentence(), "204 more: further attempts are not listed one by one");
    }

    #[test]
    fn texts_of_strangers_are_bounded_and_plain() {
        let hostile = "\u{1b}[2J\n".repeat(1000);
        let list: DeniedList = [denied(&hostile, Some(1), &hostile)].into_iter().collect();
        let one = &list.into_vec()[0];
        for text in [one.host.as_deref().unwrap(), &one.reason] {
            assert!(text.len() == MOST_TEXT && !text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn a_person_reads_what_happened_and_which_rule_helps() {
        for (one, sentence, rule) in [
            (
                denied("a.test", Some(443), "not_allowed"),
                "the connection to a.test:443 was refused: why",
                Some("a.test"),
            ),
            (
                denied("a.test", Some(22), "not_allowed"),
                "the connection to a.test:22 was refused: why",
                Some("a.test:22"),
            ),
            (denied("a.test", None, "not_allowed"), "the lookup of a.test was refused: why", Some("a.test")),
            (
                denied("2001:db8::1", Some(22), "not_allowed"),
                "the connection to [2001:db8::1]:22 was refused: why",
                Some("ip:[2001:db8::1]:22"),
            ),
            (
                denied("10.0.0.1", Some(80), "forbidden_address"),
                "the connection to 10.0.0.1:80 was refused: why",
                None,
            ),
            (denied("a.test", Some(80), "unresolved"), "the connection to a.test:80 failed: why", None),
            (Denied { host: None, ..denied("", None, "malformed_query") }, "a lookup was refused: why", None),
        ] {
            assert_eq!(one.sentence(), sentence);
            assert_eq!(one.rule().as_deref(), rule, "{sentence}");
            if let Some(rule) = rule {
                rule.parse::<crate::Rule>().unwrap();
            }
        }
    }

    #[test]
    fn json_is_flat() {
        let json = serde_json::to_value(denied("a.test", None, "not_allowed")).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "host": "a.test", "port": null, "protocol": "dns", "reason": "not_allowed", "message": "why",
                "count": 1, "at": "1970-01-01T00:00:00.007Z",
            })
        );
        assert_eq!(serde_json::from_value::<Denied>(json).unwrap().host.as_deref(), Some("a.test"));
    }
}
