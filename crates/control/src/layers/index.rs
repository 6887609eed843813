//! Where packages come from: the index, and the hosts that its files lie on.
//!
//! The operator's choice comes first. Without one the package manager itself is asked, in a sandbox without network, for
//! the address that it has built in. An index may keep its files elsewhere; it says so itself, and is asked once a day.

use sandstorm_language::Toolchain;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Rule};

use super::address::{Endpoint, with_credentials};
use super::lock::Hash;
use super::store::Store;
use super::workshop::Workshop;
use super::{IndexSource, Site, Wanted};

/// More hosts than any index has.
const MOST_HOSTS: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Index {
    /// The index first.
    addresses: Vec<String>,
    credentials: Option<String>,
    /// What the operator named beside it.
    hosts: Vec<Rule>,
    builtin: bool,
}

impl Index {
    pub(crate) fn address(&self) -> &str {
        self.addresses.first().map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn with_credentials(&self) -> String {
        with_credentials(self.address(), self.credentials())
    }

    pub(crate) fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// Whether it is the one that the package manager uses by itself.
    pub(crate) fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// What a build may reach. The index lies wherever the operator put it. Hosts that it names itself may lie off the
    /// public internet only if it does too: a public index opens nobody's private network. Those that the operator named
    /// lie wherever they lie.
    pub(crate) async fn rules(&self) -> Result<Vec<Rule>> {
        let mut endpoints = self.addresses.iter().filter_map(|address| Endpoint::of(address));
        let Some(own) = endpoints.next() else { return Ok(Vec::new()) };
        let private = own.lies_off_the_internet().await;
        let mut rules = vec![own.rule()?.internal()];
        for endpoint in endpoints {
            let rule = endpoint.rule()?;
            rules.push(if private { rule.internal() } else { rule });
        }
        rules.extend(self.hosts.iter().cloned().map(Rule::internal));
        Ok(rules)
    }
}

/// Finds the index of a recipe, from a note of at most a day ago or by asking.
pub(crate) async fn find(
    store: &Store,
    site: Site<'_>,
    wanted: &Wanted<'_>,
    own: &Toolchain,
    source: &IndexSource,
) -> Result<Index> {
    if let Some(address) = &source.address {
        check(wanted, address)?;
    }
    let note = note_name(wanted, source);
    let index = |addresses: Vec<String>| Index {
        addresses,
        credentials: source.credentials.clone(),
        hosts: source.hosts.clone(),
        builtin: source.address.is_none(),
    };
    if let Some(text) = store.note(&note) {
        return Ok(index(text.lines().map(str::to_owned).collect()));
    }
    let mut addresses = match &source.address {
        Some(address) => vec![address.clone()],
        None => builtin(site, wanted, own).await?,
    };
    if let Some(script) = &wanted.recipe.index.hosts
        && (source.address.is_some() || addresses.len() == 1)
    {
        let found = index(addresses.clone());
        let shop = Workshop::open(site, wanted, own, Some(&found), None).await?;
        let answer = shop.ask(site, wanted, script).await;
        shop.close(site).await?;
        // An index that did not answer is asked again next time; the files of most lie beside it.
        let Some(text) = answer? else { return Ok(index(distinct(addresses))) };
        addresses.extend(text.lines().map(str::to_owned));
    }
    let addresses = distinct(addresses);
    if let Err(error) = store.keep_note(&note, &addresses.join("\n")) {
        tracing::warn!(%error, "the address of the package index cannot be kept");
    }
    Ok(index(addresses))
}

fn note_name(wanted: &Wanted<'_>, source: &IndexSource) -> String {
    let mut hash = Hash::new("sandstorm index v1", wanted);
    hash.field(source.address.as_deref().unwrap_or_default().as_bytes());
    for script in [&wanted.recipe.index.builtin, &wanted.recipe.index.hosts] {
        hash.field(script.as_deref().unwrap_or_default().as_bytes());
    }
    hash.finish()
}

/// What the package manager uses when nobody told it otherwise.
async fn builtin(site: Site<'_>, wanted: &Wanted<'_>, own: &Toolchain) -> Result<Vec<String>> {
    let name = &wanted.recipe.name;
    let unknown = || {
        let message =
            format!("no package index is known for {name}; set packages.{name}.index in the configuration");
        Error::new(ErrorKind::InvalidRequest, message)
    };
    let script = wanted.recipe.index.builtin.as_ref().ok_or_else(unknown)?;
    let shop = Workshop::open(site, wanted, own, None, None).await?;
    let answer = shop.ask(site, wanted, script).await;
    shop.close(site).await?;
    let text = answer?.ok_or_else(unknown)?;
    let addresses: Vec<String> =
        text.lines().map(str::trim).filter(|line| Endpoint::of(line).is_some()).map(str::to_owned).collect();
    if addresses.is_empty() { Err(unknown()) } else { Ok(addresses) }
}

fn check(wanted: &Wanted<'_>, address: &str) -> Result<()> {
    let name = &wanted.recipe.name;
    let problem = match Endpoint::of(address) {
        None => "it is not an address that starts with https:// or http://",
        Some(endpoint) if endpoint.is_loopback() => {
            "a loopback address means the sandbox itself; name the machine by its host name or another address"
        }
        Some(_) => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::InvalidRequest,
        format!("the package index of {name} cannot be used: {problem}"),
    ))
}

/// The first address, and one for each further place to connect to.
fn distinct(addresses: Vec<String>) -> Vec<String> {
    let mut seen = Vec::new();
    let mut kept = Vec::new();
    for address in addresses {
        if let Some(endpoint) = Endpoint::of(&address)
            && !endpoint.is_loopback()
            && !seen.contains(&endpoint)
            && kept.len() < MOST_HOSTS
        {
            seen.push(endpoint);
            kept.push(address);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_operator_names_may_be_private_and_what_an_index_names_may_not() {
        let index = Index {
            addresses: vec!["http://192.0.2.1/simple".to_owned(), "http://198.51.100.1/files".to_owned()],
            credentials: None,
            hosts: vec!["ip:10.0.0.7:8443".parse().unwrap()],
            builtin: true,
        };
        let private = Index { addresses: vec!["http://10.0.0.1/".to_owned()], ..index.clone() };
        let told = async |index: &Index| -> Vec<(String, bool)> {
            let rules = index.rules().await.unwrap();
            rules.iter().map(|rule| (rule.to_string(), rule.is_internal())).collect()
        };
        let named = ("ip:10.0.0.7:8443".to_owned(), true);
        assert_eq!(told(&private).await, [("ip:10.0.0.1:80".to_owned(), true), named.clone()]);
        assert_eq!(told(&index).await.last(), Some(&named));
    }

    #[test]
    fn one_address_for_each_place_and_none_of_our_own() {
        let given = [
            "https://a.example/simple/",
            "https://a.example/x",
            "relative",
            "http://127.0.0.1/",
            "https://f.example/y",
        ];
        let kept = distinct(given.map(str::to_owned).to_vec());
        assert_eq!(kept, ["https://a.example/simple/", "https://f.example/y"]);
    }
}
