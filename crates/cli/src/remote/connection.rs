//! Which server, and with which key.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sandstorm_client::{Client, Error};
use sandstorm_config::{Environment, Secret, SecretRef};
use sandstorm_types::duration;

use super::output::Output;
use crate::complaint::{misuse, note};

const DEFAULT_URL: &str = "http://127.0.0.1:7300";
const URL: &str = "SANDSTORM_URL";
const KEY: &str = "SANDSTORM_API_KEY";

/// A wait that is shorter is over before it is read.
const NOTICED: Duration = Duration::from_secs(1);

/// Understood by every command that talks to a server.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// Server to talk to, instead of SANDSTORM_URL or http://127.0.0.1:7300
    #[arg(long, global = true, value_name = "URL", help_heading = "Server")]
    url: Option<String>,
    /// File that holds the key, instead of SANDSTORM_API_KEY
    #[arg(long, global = true, value_name = "FILE", help_heading = "Server")]
    api_key_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl Connection {
    pub(super) fn output(&self) -> Output {
        Output { json: self.json }
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let environment = Environment::of_process();
        let url = match (&self.url, environment.get(URL)) {
            (Some(url), _) => url.clone(),
            (None, Some(url)) => {
                url.to_str().ok_or_else(|| misuse(format!("{URL} is not UTF-8")))?.to_owned()
            }
            (None, None) => DEFAULT_URL.to_owned(),
        };
        let key = self.key(&environment)?;
        let client = Client::new(&url, key.as_ref().map(Secret::expose_secret))?;
        client.tell_waits(say_wait);
        Ok(client)
    }

    /// Whether a key is at hand.
    pub(crate) fn has_key(&self) -> bool {
        self.api_key_file.is_some() || Environment::of_process().get(KEY).is_some()
    }

    fn key(&self, environment: &Environment) -> anyhow::Result<Option<Secret>> {
        let place = match &self.api_key_file {
            Some(path) => SecretRef::File(path.clone()),
            None if environment.get(KEY).is_some() => SecretRef::Environment(KEY.to_owned()),
            None => return Ok(None),
        };
        let key = place.resolve(environment);
        key.map(Some).map_err(|error| {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            misuse(format!("no key: {error}{cause}"))
        })
    }
}

/// Says that the server is busy, why, and when it is asked again.
fn say_wait(error: &Error, wait: Duration) {
    if wait >= NOTICED {
        note(&format!("the server is busy: {error}; trying again in {}", duration::format(wait)));
    }
}
