//! A database of the test's own in a real PostgreSQL, which the tests start.

use std::path::PathBuf;

use sandstorm_store::testing::Postgres;

use crate::support::{Place, skip};

/// An empty database. It goes with the value.
#[derive(Debug)]
pub struct Database {
    _server: Postgres,
    _place: Place,
    file: PathBuf,
}

impl Database {
    /// The address as the configuration takes it: by reference.
    pub fn reference(&self) -> String {
        format!("file:{}", self.file.display())
    }
}

/// `None`, with the reason told: there is no PostgreSQL here.
pub fn database() -> Option<Database> {
    let server = match Postgres::start() {
        Ok(server) => server,
        Err(reason) => {
            skip(&reason);
            return None;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = runtime.block_on(server.database()).unwrap();
    let place = Place::new();
    let file = place.write("database.url", url);
    Some(Database { _server: server, _place: place, file })
}
