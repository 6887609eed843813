//! A PostgreSQL of one's own: a private directory, a socket in it, no port.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::audit::random_name;

const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a cluster and serves it until its input ends, which it does when the process that started it ends, in
/// whatever way; then takes everything away.
const KEEPER: &str = r#"
"$1/initdb" -D "$2/data" -U sandstorm -A trust -E UTF8 --locale=C --no-sync >"$2/log" 2>&1 || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=300 >>"$2/log" 2>&1 &
server=$!
read -r _
kill -INT "$server"
wait "$server"
rm -rf "$2"
"#;

/// A server that runs as long as this value, and no longer than this process.
#[derive(Debug)]
pub struct Postgres {
    directory: PathBuf,
    keeper: Child,
    databases: AtomicU32,
}

impl Postgres {
    /// Starts one, or says why it cannot: PostgreSQL is missing, or there is nobody to run it as.
    pub fn start() -> Result<Self, String> {
        let programs = programs().ok_or("PostgreSQL is not installed (Debian's package is `postgresql`)")?;
        let directory = std::env::temp_dir().join(format!("sandstorm-pg-{}", &random_name()[..12]));
        let failed =
            |error: io::Error| format!("cannot start PostgreSQL in {}: {error}", directory.display());
        // Other users reach the socket in it; the data beside it is private.
        fs::DirBuilder::new().mode(0o711).create(&directory).map_err(failed)?;
        let mut command = keeper(&directory)?;
        let keeper = command.arg(programs).arg(&directory).stdin(Stdio::piped()).spawn().map_err(failed)?;
        let mut server = Self { directory, keeper, databases: AtomicU32::new(0) };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(self.directory.join(".s.PGSQL.5432")).is_err() {
            let ended = self.keeper.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                return Err(format!("PostgreSQL does not start: {log}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The address of a new and empty database.
    pub async fn database(&self) -> Result<String, sqlx::Error> {
        let name = format!("case_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let deadline = Instant::now() + PATIENCE;
        // It listens before it is ready to answer.
        let mut connection = loop {
            match PgConnection::connect(&self.url("postgres")).await {
                Err(sqlx::Error::Database(_)) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                connection => break connection?,
            }
        };
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await?;
        connection.close().await?;
        Ok(self.url(&name))
    }

    /// Ends every connection to a database, as a restart of the server would.
    pub async fn disconnect_all(&self, database_url: &str) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(&self.url("postgres")).await?;
        let name = database_url.split('/').nth(3).and_then(|rest| rest.split('?').next()).unwrap_or_default();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
        sqlx::query(end).bind(name.to_owned()).execute(&mut connection).await?;
        connection.close().await
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://sandstorm@localhost/{database}?host={}", self.directory.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        if let Err(error) = self.keeper.wait() {
            tracing::warn!(%error, "the PostgreSQL of the tests was not waited for");
        }
    }
}

/// Debian keeps each version's programs in a folder of its own.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            Some((entry.as_ref().ok()?.file_name().to_str()?.parse().ok()?, entry.ok()?.path()))
        })
        .map(|(version, path): (u32, PathBuf)| (version, path.join("bin")))
        .collect();
    versions.sort();
    let in_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let complete = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    versions.into_iter().rev().map(|(_, folder)| folder).chain(in_path).find(complete)
}

/// PostgreSQL refuses to run as root, so root runs it as somebody else.
#[expect(clippy::disallowed_methods, reason = "tests start a database server, outside any wall")]
fn keeper(directory: &Path) -> Result<Command, String> {
    let owner = fs::metadata(directory).map_err(|error| error.to_string())?.uid();
    let mut command = if owner == 0 {
        let (uid, gid) =
            ordinary_user().ok_or("there is no user `sandstorm-test` or `nobody` to run PostgreSQL as")?;
        chown(directory, Some(uid), Some(gid)).map_err(|error| error.to_string())?;
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).args(["--clear-groups", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    // In a group of its own: an interrupt that ends the tests must leave it time to tidy up.
    command.args(["-c", KEEPER, "keeper"]).current_dir("/").process_group(0);
    Ok(command)
}

fn ordinary_user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let user = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2);
        Some((ids.next()?.parse().ok()?, ids.next()?.parse().ok()?))
    };
    user("sandstorm-test").or_else(|| user("nobody"))
}
