//! The sandbox that a layer is made in.

use std::time::Duration;

use bytes::Bytes;
use sandstorm_language::Toolchain;
use sandstorm_provider::{
    ByteStream, CreateOptions, EndCause, Error, ExecRequest, ExecStatus, FileOp, FileReply, HostMount,
    OpContext, Result,
};
use sandstorm_types::{
    AllowList, ByteSize, EnvMap, ErrorKind, Lifetime, Limits, NetworkPolicy, OnEnd, Requirement, SandboxId,
    SandboxSpec,
};

use super::index::Index;
use super::{Layer, Site, Wanted, address, failure};
use crate::artifact::unpack;
use crate::compile::guest_path;
use crate::execute::{Executed, execute};
use crate::reserve::{BUILD_CPUS, Room};
use crate::run::RunInput;
use crate::spool::Spools;

/// Where the scripts work, and what they leave behind.
const PLACE: &str = "/workspace";
pub(crate) const LOCK: &str = "/workspace/lock";
pub(crate) const LAYER: &str = "/workspace/layer";

/// Certificates that every sandbox shows, and the variables by which package managers learn of them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const CERTIFICATE_VARIABLES: [&str; 6] = [
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
];

/// A sandbox with `lock/` and `layer/` in its working folder. [`Workshop::close`] ends it.
#[derive(Debug)]
pub(crate) struct Workshop {
    id: SandboxId,
    env: EnvMap,
    secrets: Vec<String>,
}

impl Workshop {
    /// Without an index there is no network.
    pub(crate) async fn open(
        site: Site<'_>,
        wanted: &Wanted<'_>,
        own: &Toolchain,
        index: Option<&Index>,
        tool: Option<&Layer>,
    ) -> Result<Self> {
        let network = match index {
            Some(index) => NetworkPolicy::Allow(AllowList::new(index.rules().await?).map_err(|e| {
                Error::new(ErrorKind::InvalidRequest, "the package index names too many hosts").with_source(e)
            })?),
            None => NetworkPolicy::None,
        };
        let limits = limits(site.room);
        let spec = SandboxSpec {
            limits,
            enforcement: wanted.enforcement,
            network,
            lifetime: Lifetime { after: limits.wall * 2 + Duration::from_secs(60), then: OnEnd::Delete },
            ..SandboxSpec::default()
        };
        let same = |path: &std::path::PathBuf| HostMount { source: path.clone(), target: path.clone() };
        let mut mounts: Vec<HostMount> =
            wanted.toolchain.mounts.iter().chain(&own.mounts).map(same).collect();
        mounts.extend(tool.map(|tool| tool.mount.clone()));
        let options = CreateOptions { pooled: false, mounts, ephemeral: true, ..CreateOptions::default() };
        let secrets = index.and_then(Index::credentials).map(address::secrets).unwrap_or_default();
        let shop = Self { id: options.id, env: environment(wanted, own, index, tool)?, secrets };
        let made = async {
            site.provider.create(site.cx, &spec, options).await?;
            for path in [LOCK, LAYER] {
                site.provider.files(site.cx, &shop.id, FileOp::MakeDir { path: guest_path(path)? }).await?;
            }
            Ok(())
        };
        match made.await {
            Ok(()) => Ok(shop),
            Err(error) => {
                shop.close(site).await?;
                Err(error)
            }
        }
    }

    /// Runs a script of the recipe on what was asked for; its complaints become the error.
    pub(crate) async fn perform(
        &self,
        site: Site<'_>,
        wanted: &Wanted<'_>,
        step: &str,
        script: &str,
    ) -> Result<()> {
        let executed = self.run(site, wanted, script).await?;
        if succeeded(&executed) {
            return Ok(());
        }
        Err(failure::of(wanted.recipe, step, &executed, &self.secrets))
    }

    /// Runs a script of the recipe and gives what it printed, or nothing if it failed.
    pub(crate) async fn ask(
        &self,
        site: Site<'_>,
        wanted: &Wanted<'_>,
        script: &str,
    ) -> Result<Option<String>> {
        let executed = self.run(site, wanted, script).await?;
        if !succeeded(&executed) {
            let said = String::from_utf8_lossy(&executed.stderr).into_owned();
            tracing::debug!(manager = %wanted.recipe.name, said, "a question about the index was not answered");
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&executed.stdout).into_owned()))
    }

    async fn run(&self, site: Site<'_>, wanted: &Wanted<'_>, script: &str) -> Result<Executed> {
        let names = wanted.requirements.iter().map(Requirement::as_str);
        let argv = ["/bin/sh", "-euc", script, "sh"].into_iter().chain(names);
        let mut request = ExecRequest::program(argv);
        request.env = self.env.clone();
        request.cwd = Some(guest_path(PLACE)?);
        execute(site.provider, site.cx, &self.id, request, RunInput::Empty, None, Spools::Memory).await
    }

    pub(crate) async fn pack(&self, site: Site<'_>, path: &str) -> Result<ByteStream> {
        match site.provider.files(site.cx, &self.id, FileOp::Pack { path: guest_path(path)? }).await? {
            FileReply::Archive(archive) => Ok(archive),
            _ => Err(Error::new(ErrorKind::Internal, "packing gave no archive")),
        }
    }

    pub(crate) async fn unpack(&self, site: Site<'_>, path: &str, archive: Bytes) -> Result<()> {
        unpack(site.provider, site.cx, &self.id, guest_path(path)?, archive.into()).await
    }

    /// Ends the sandbox, whether or not the work was cancelled.
    pub(crate) async fn close(self, site: Site<'_>) -> Result<()> {
        site.provider.destroy(&OpContext::new(site.cx.tenant()), &self.id).await
    }
}

fn succeeded(executed: &Executed) -> bool {
    executed.end.cause == EndCause::Program && executed.end.status == ExecStatus::Code(0)
}

/// Memory for installing, whatever the run is limited to. Files lie in memory, so it holds them and the program: three fifths
/// and two fifths.
pub(super) const MEMORY: ByteSize = ByteSize::gib(5);

/// What installing may use.
fn limits(room: Option<Room>) -> Limits {
    let fifth = room.map_or(MEMORY, |room| MEMORY.min(room.memory)).as_u64() / 5;
    Limits {
        wall: Duration::from_secs(600),
        cpu_time: None,
        cpus: room.map_or(BUILD_CPUS, |room| BUILD_CPUS.min(room.cpus)),
        memory: ByteSize::bytes(2 * fifth),
        disk: ByteSize::bytes(3 * fifth),
        output: ByteSize::mib(1),
        processes: 512,
        open_files: 4096,
        inodes: 500_000,
    }
}

/// Programs by the names that scripts use, the index, the certificates, and what the recipe sets.
fn environment(
    wanted: &Wanted<'_>,
    own: &Toolchain,
    index: Option<&Index>,
    tool: Option<&Layer>,
) -> Result<EnvMap> {
    let bad = |e: sandstorm_types::EnvError| {
        Error::new(ErrorKind::Internal, "a variable of a recipe").with_source(e)
    };
    let mut env = EnvMap::new();
    let mut set = |name: &str, value: String| env.insert(name.parse().map_err(bad)?, value).map_err(bad);
    for (name, path) in wanted.toolchain.programs.iter().chain(&own.programs) {
        set(&name.to_uppercase(), path.display().to_string())?;
    }
    if let Some(index) = index {
        set("INDEX", index.address().to_owned())?;
        set("INDEX_WITH_CREDENTIALS", index.with_credentials())?;
        if index.is_builtin() {
            set("INDEX_BUILTIN", "1".to_owned())?;
        }
        if let Some(credentials) = index.credentials() {
            set("INDEX_CREDENTIALS", credentials.to_owned())?;
        }
    }
    if std::path::Path::new(CERTIFICATES).is_file() {
        for name in CERTIFICATE_VARIABLES {
            set(name, CERTIFICATES.to_owned())?;
        }
    }
    let tools = match (tool, &wanted.recipe.tool) {
        (Some(_), Some(tool)) => format!("{}:", tool.path.display()),
        _ => String::new(),
    };
    set("PATH", format!("{tools}/usr/local/bin:/usr/bin:/bin"))?;
    for (name, value) in &wanted.recipe.env {
        set(name, value.clone())?;
    }
    Ok(env)
}
