//! `sandstorm serve`.
//!
//! Order matters here: the launcher is found or forked while there is one thread and root's rights, then ports are
//! bound, then the rights go, and only then the runtime starts. See the process model in `ARCHITECTURE.md`.

mod ability;
mod addresses;
mod arguments;
mod home;
mod languages;
mod listeners;
mod mounts;
mod owner;
mod plan;
mod providers;
mod secrets;
mod settings;
mod stop;
mod user;

use std::convert::Infallible;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sandstorm_config::{Flag, Loaded};
use sandstorm_control::server::{Control, Settings, Setup};
use sandstorm_control::{CompileCache, Runner, Tools};
use sandstorm_dialect_session as session;
use sandstorm_gateway::{Foreign, Front, Gateway, GatewaySettings, PortForwarder, PortHost};
use sandstorm_provider::{Closing, Provider, Tasks};
use sandstorm_store::Store;
use sandstorm_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

use crate::arguments::Shared;
use crate::complaint::warn;
use crate::{configuration, local};
use ability::{Ability, Circumstances};
pub(crate) use arguments::ServeCommand;
pub(crate) use home::Home;
use languages::Languages;
use listeners::{Ending, Listeners};
pub(crate) use plan::Plan;
pub(crate) use secrets::private;
pub(crate) use settings::{control as control_settings, database};
use stop::{How, Stop};
pub(crate) use user::ServerUser;

/// How long threads may take that wait for somebody else when everything is over.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// For a server that cannot go on.
const LOST: &str =
    "the launcher is gone for good, so the server cannot go on; started again, it makes a new one";

/// For a server whose records are another's by now.
const SUPERSEDED: &str = "another server has taken over the records of this one; started again, it ends what is left of its sandboxes";

pub(crate) fn serve(shared: &Shared, command: &ServeCommand) -> anyhow::Result<ExitCode> {
    // Each client and each sandbox needs some, and what a shell allows is little.
    sandstorm_jail::launcher::allow_descriptors();
    let mut flags = Vec::new();
    if let Some(listen) = &command.listen {
        flags.push(Flag::new("--listen", "serve.listen", listen));
    }
    if let Some(listen) = &command.admin_listen {
        flags.push(Flag::new("--admin-listen", "serve.admin_listen", listen));
    }
    let loaded = configuration::load_for_server(shared, flags)?;
    let plan = Plan::make(&loaded, command)?;
    plan.warnings.iter().for_each(|warning| warn(warning));
    let user = plan.user;
    // Held until this process is gone.
    let (home, _owner) = Home::own(&loaded, user)?;
    // The launcher before any socket of ours: it outlives us, and would keep the port that it inherited.
    let engine = local::Resident::start(&loaded, &home, user.map(|user| user.uid))?;
    let listeners = Listeners::bind(plan.addresses, plan.tls.clone(), &home, user)?;
    if let Some(user) = user {
        user.become_it()?;
    }
    if let Err(error) = sandstorm_sys::program::gather_program() {
        tracing::debug!(%error, "the server's code stays in small pages");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16))
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    let served = runtime.block_on(async {
        let telemetry = Telemetry::start(plan.telemetry.clone()).context("telemetry could not be started")?;
        let telemetry = Arc::new(telemetry);
        let served = run_server(&loaded, command, plan, &home, listeners, engine, &telemetry).await;
        telemetry.shutdown().await;
        served
    });
    // What still waits for somebody who is gone must not keep the process.
    runtime.shutdown_timeout(LAST_THREADS);
    served
}

async fn run_server(
    loaded: &Loaded,
    command: &ServeCommand,
    plan: Plan,
    home: &Home,
    listeners: Listeners,
    engine: local::Resident,
    telemetry: &Arc<Telemetry>,
) -> anyhow::Result<ExitCode> {
    let config = &loaded.config;
    let no_group = engine.no_group.clone();
    let provider = engine.provider(config, home).await?;
    let around = Circumstances {
        is_private: plan.addresses.are_private(),
        has_others: !plan.providers.is_empty(),
        no_group: no_group.as_deref(),
    };
    let Ability { enforcement, notices } = Ability::find(&*provider, config, around).await?;
    notices.iter().for_each(|notice| warn(notice));
    local::keep_ready(config, enforcement, &provider);
    let mut records = home.store(plan.database, config.database.durability)?;
    records.lease = config.database.lease;
    let store = Store::open(&records).await.context("the database could not be opened")?;
    let runner = Runner::new(Tools {
        provider: Arc::clone(&provider) as Arc<_>,
        limits: config.limits,
        roots: local::roots(config),
        cache: Some(CompileCache::new(home.cache().join("compile"), config.cache.max_bytes.as_u64())),
        layers: Some(plan.layers),
    });
    let runner = runner.spooling_in(home.spool());
    let here = Arc::clone(&provider) as Arc<dyn Provider>;
    let elsewhere = Tasks::default();
    let fleet = providers::fleet(loaded, plan.providers, home, &here, enforcement, &elsewhere).await?;
    let (runner, chosen) = match fleet {
        Some(fleet) => (runner.over(Arc::clone(&fleet), here), fleet as Arc<dyn Provider>),
        None => (runner, here),
    };
    let setup = Setup {
        store: store.clone(),
        provider: chosen,
        runner,
        settings: Settings {
            enforcement,
            keyless: command.dev_no_auth,
            ..settings::control(loaded, home.pepper()?)?
        },
    };
    let control = Control::start(setup).await.context("the server could not take up its work")?;
    let first_key = if command.dev_no_auth { None } else { control.first_key().await? };
    // Only the listeners cancel it; everything else hears it through `closing`.
    let stopping = CancellationToken::new();
    let closing = Closing::of(&stopping);
    let giving_up = CancellationToken::new();
    let stop = Stop::listen()?;
    let languages = Languages::default();
    let gateway = |extra| {
        let (rendering, languages) = (Arc::clone(telemetry), languages.clone());
        Gateway {
            control: control.clone(),
            settings: GatewaySettings {
                giving_up: Closing::of(&giving_up),
                ..settings::gateway(loaded, command, closing.clone())
            },
            metrics: Box::new(move || rendering.render()),
            languages: Box::new(move || languages.views()),
            extra,
        }
    };
    let sessions = settings::session(loaded)
        .map(|settings| Foreign { routes: session::router(control.clone(), settings), ..Foreign::default() });
    let assistants = settings::mcp(loaded, command, closing.clone())?
        .map(|settings| sandstorm_dialect_mcp::Server::new(control.clone(), settings));
    let assistant_routes = assistants.as_ref().map(|server| Foreign {
        routes: sandstorm_dialect_mcp::router(server),
        open: sandstorm_dialect_mcp::open_router(server),
        metadata: Some(sandstorm_dialect_mcp::METADATA),
        ..Foreign::default()
    });
    let e2b = settings::e2b(loaded, closing.clone())?.map(|settings| {
        let ports = PortForwarder::new(control.clone(), settings::gateway(loaded, command, closing.clone()));
        let forward: sandstorm_dialect_e2b::Forward = Arc::new(move |asked| {
            let ports = ports.clone();
            let sandstorm_dialect_e2b::PortRequest { caller, sandbox, port, own_host, host, request } = asked;
            let place = if own_host { PortHost::Own } else { PortHost::Api };
            Box::pin(async move { ports.forward(caller, sandbox, port, place, host, request).await })
        });
        sandstorm_dialect_e2b::Dialect::new(control.clone(), settings, forward)
    });
    let e2b_routes = e2b.as_ref().map(|dialect| {
        let (claiming, endless) = (dialect.clone(), dialect.clone());
        let front = Front::new(move |parts| claiming.claims(parts), dialect.data_plane());
        Foreign {
            routes: dialect.routes(),
            open: dialect.open(),
            front: Some(front.with_endless_bodies(move |parts| endless.is_endless(parts))),
            refusal: Some(sandstorm_dialect_e2b::refusal),
            ..Foreign::default()
        }
    });
    let foreign = sessions.into_iter().chain(assistant_routes).chain(e2b_routes).collect();
    let public = sandstorm_gateway::router(gateway(foreign));
    let operators = sandstorm_gateway::admin_router(gateway(Vec::new()));
    announce(&listeners.describe(), first_key.as_deref(), command)?;
    let ending = Ending {
        stop,
        lost: {
            let (engine, records) = (provider.lost(), control.superseded());
            Box::pin(async move {
                tokio::select! {
                    why = engine => why,
                    () = records => SUPERSEDED.to_owned(),
                }
            })
        },
        control: control.clone(),
        closing: stopping,
        giving_up,
        why_lost: None,
        began: None,
    };
    let serving = listeners.serve(config, (public, operators), ending);
    // Which languages there are is looked at while the server already answers.
    let how = tokio::select! {
        how = serving => how?,
        never = async {
            languages.find(loaded, &*provider).await;
            std::future::pending::<Infallible>().await
        } => match never {},
    };
    if let Some(assistants) = assistants {
        assistants.finished().await;
    }
    if let Some(e2b) = e2b {
        e2b.finished().await;
    }
    let last_steps = async {
        control.stop().await;
        if how == How::ForGood {
            control.end_everything().await;
        }
    };
    if tokio::time::timeout(how.last_steps(), last_steps).await.is_err() {
        tracing::error!(?how, "the server ends though somebody is still waited for");
    }
    if how != How::Lost
        && let Err(error) = store.part().await
    {
        tracing::debug!(%error, "the store could not be told that this server stops");
    }
    store.close().await;
    if how == How::Lost {
        bail!("{}", if control.is_superseded() { SUPERSEDED } else { LOST });
    }
    elsewhere.stop().await;
    drop(control);
    match (Arc::into_inner(provider), how) {
        (Some(provider), How::ForGood) => provider.shut_down_launcher().await,
        (Some(provider), How::KeepSandboxes | How::Lost) => provider.detach().await,
        (None, _) => {
            tracing::warn!("somebody still uses the engine; the launcher takes care of what is left")
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person needs to see, and what a program that starts us waits for. The address comes last: once it is there,
/// the server answers.
fn announce(addresses: &str, first_key: Option<&str>, command: &ServeCommand) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if let Some(key) = first_key {
        writeln!(stdout, "first key, shown this once: {key}")?;
    }
    if command.dev_no_auth {
        writeln!(stdout, "no keys are asked for: whoever can reach this port can run code")?;
    }
    writeln!(stdout, "sandstorm {} listening on {addresses}", env!("CARGO_PKG_VERSION"))?;
    stdout.flush()?;
    Ok(())
}
