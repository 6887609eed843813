//! A world behind the proxy that tests control: names, addresses, and who asked for them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sandstorm_types::{AllowList, NetworkPolicy, Rule};
use tokio::net::TcpStream;

use crate::limits::Options;
use crate::proxy::Shared;
use crate::upstream::{Dialer, Resolver, Upstream};

/// Answers from a table and remembers every question.
#[derive(Debug, Default)]
pub(crate) struct FakeResolver {
    pub(crate) answers: Mutex<HashMap<String, Vec<IpAddr>>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Resolver for FakeResolver {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        self.answers.lock().unwrap().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Takes every connection to one local server and remembers where it should have gone.
#[derive(Debug)]
pub(crate) struct FakeDialer {
    pub(crate) server: SocketAddr,
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
}

#[async_trait]
impl Dialer for FakeDialer {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().unwrap().push(address);
        TcpStream::connect(self.server).await
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) resolver: Arc<FakeResolver>,
    pub(crate) dialer: Arc<FakeDialer>,
}

impl World {
    pub(crate) fn new(policy: NetworkPolicy, options: Options, server: SocketAddr) -> Self {
        let resolver = Arc::new(FakeResolver::default());
        let dialer = Arc::new(FakeDialer { server, dialled: Mutex::default() });
        let upstream = Upstream { resolver: resolver.clone(), dialer: dialer.clone() };
        Self { shared: Arc::new(Shared::new(policy, upstream, options)), resolver, dialer }
    }

    pub(crate) fn resolves(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.resolver.answers.lock().unwrap().insert(name.to_owned(), addresses);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.resolver.asked.lock().unwrap().clone()
    }

    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        self.dialer.dialled.lock().unwrap().clone()
    }
}

pub(crate) fn allow(rules: &[&str]) -> NetworkPolicy {
    list(rules.iter().map(|rule| rule.parse().unwrap()).collect())
}

pub(crate) fn list(rules: Vec<Rule>) -> NetworkPolicy {
    NetworkPolicy::Allow(AllowList::new(rules).unwrap())
}
