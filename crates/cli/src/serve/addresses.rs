//! The TCP addresses of a server: chosen in one place, so that what holds for one holds for all of them.

use std::net::SocketAddr;

use sandstorm_config::Serve;

use crate::complaint::misuse;

/// Every TCP address that a server listens on. Nothing else in a server opens a port: [`Listeners`](super::Listeners) binds
/// these and a Unix socket that checks who connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) public: SocketAddr,
    pub(super) operators: Option<SocketAddr>,
    has_tls: bool,
}

impl Addresses {
    /// Refuses any address that others can reach while the server asks for no keys: operators' routes hand out keys, and
    /// all other routes run code.
    pub(super) fn choose(serve: &Serve, asks_for_keys: bool) -> anyhow::Result<Self> {
        let has_tls = serve.tls.files().is_some();
        let chosen = Self { public: serve.listen, operators: serve.admin_listen, has_tls };
        match chosen.reachable().next() {
            Some((setting, address)) if !asks_for_keys => Err(misuse(format!(
                "--dev-no-auth lets everybody in, so it listens on loopback addresses only, and `{setting}` is {address}"
            ))),
            _ => Ok(chosen),
        }
    }

    /// Whether only this machine reaches the server.
    pub(super) fn are_private(&self) -> bool {
        self.reachable().next().is_none()
    }

    /// What is odd about them.
    pub(super) fn warnings(&self) -> Vec<String> {
        if self.has_tls {
            return Vec::new();
        }
        let warning = |(setting, address)| {
            format!(
                "`{setting}` is {address}, which other machines can reach, and there is no TLS: keys, code and output \
                 cross the network in clear. Set `serve.tls`, or listen on 127.0.0.1 behind a reverse proxy that has it"
            )
        };
        self.reachable().map(warning).collect()
    }

    /// The addresses that other machines can reach, each with the setting that names it.
    fn reachable(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let all = [("serve.listen", Some(self.public)), ("serve.admin_listen", self.operators)];
        all.into_iter()
            .filter_map(|(setting, address)| Some((setting, address?)))
            .filter(|(_, address)| !address.ip().to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(listen: &str, admin_listen: Option<&str>) -> Serve {
        let address = |text: &str| text.parse().unwrap();
        Serve { listen: address(listen), admin_listen: admin_listen.map(address), ..Serve::default() }
    }

    #[test]
    fn without_keys_every_address_is_a_loopback_one() {
        for (listen, admin, named) in [
            ("0.0.0.0:1", None, "serve.listen"),
            ("[::]:1", Some("127.0.0.1:2"), "serve.listen"),
            ("127.0.0.1:1", Some("0.0.0.0:2"), "serve.admin_listen"),
            ("127.0.0.1:1", Some("192.0.2.1:2"), "serve.admin_listen"),
            ("[::1]:1", Some("[2001:db8::1]:2"), "serve.admin_listen"),
        ] {
            let settings = serve(listen, admin);
            let refused = Addresses::choose(&settings, false).unwrap_err().to_string();
            assert!(refused.contains(named) && refused.contains("--dev-no-auth"), "{refused}");
            assert!(!Addresses::choose(&settings, true).unwrap().are_private());
        }
        for (listen, admin) in
            [("127.0.0.1:1", Some("127.0.0.2:2")), ("[::1]:1", None), ("[::ffff:127.0.0.1]:1", None)]
        {
            assert!(Addresses::choose(&serve(listen, admin), false).unwrap().are_private());
        }
    }

    #[test]
    fn clear_text_on_an_address_of_others_is_warned_of() {
        let of = |serve: &Serve| Addresses::choose(serve, true).unwrap().warnings();
        assert_eq!(of(&serve("127.0.0.1:1", Some("[::1]:2"))), Vec::<String>::new());
        let warned = of(&serve("127.0.0.1:1", Some("0.0.0.0:2")));
        assert!(warned.len() == 1 && warned[0].contains("`serve.admin_listen` is 0.0.0.0:2"), "{warned:?}");
        assert_eq!(of(&serve("0.0.0.0:1", Some("0.0.0.0:2"))).len(), 2);
        let mut encrypted = serve("0.0.0.0:1", Some("0.0.0.0:2"));
        (encrypted.tls.cert, encrypted.tls.key) = (Some("/a".into()), Some("/b".into()));
        assert_eq!(of(&encrypted), Vec::<String>::new());
    }
}
