//! `sandstorm keys` and `sandstorm tenants`: on the state directory, whether a server runs or not.
//!
//! Who can read the state directory can do anything to its server, so no key is asked for. A running server honours
//! changes within a second.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use sandstorm_control::server::keys::{Actor, Keys};
use sandstorm_control::server::{KeyForm, KeyView, NewKey, NewTenant, Scopes};
use sandstorm_store::{Store, TenantRow};
use sandstorm_types::{TenantId, Timestamp, duration};

use crate::arguments::Shared;
use crate::complaint::{misuse, note, safe};
use crate::configuration;
use crate::serve::Home;

/// `sandstorm keys`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it, this once
    Create(CreateKey),
    /// Show the keys, without their secrets
    List {
        /// Only those of this tenant, by name or id
        #[arg(long)]
        tenant: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a key useless, within a second
    Revoke {
        /// The key's public id, as `list` shows it
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make another key with the same rights, and let the old one run out
    Rotate {
        /// The key's public id
        id: String,
        /// How long the old key stays good
        #[arg(long, default_value = "1h", value_name = "TIME")]
        overlap: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateKey {
    /// What it is for
    #[arg(long, default_value = "made by hand")]
    name: String,
    /// Whose it is, by name or id [default: the local tenant]
    #[arg(long)]
    tenant: Option<String>,
    /// What it allows, of run, sandbox, files and admin
    #[arg(long, default_value = "run,sandbox,files")]
    scopes: String,
    /// When it runs out, such as `90d`
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// How it looks
    #[arg(long, value_enum, default_value_t = Form::Native)]
    form: Form,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    Native,
    E2b,
}

/// `sandstorm tenants`.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// Make a tenant: who shares nothing with the others
    Create {
        /// What it is called
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the tenants
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn keys(shared: &Shared, command: KeysCommand) -> anyhow::Result<ExitCode> {
    with(shared, async |keys| match command {
        KeysCommand::Create(wanted) => create(keys, wanted).await,
        KeysCommand::List { tenant, json } => {
            let tenant = match tenant {
                Some(name) => Some(find(keys, &name).await?.id),
                None => None,
            };
            show_keys(&keys.list(tenant).await?, json)
        }
        KeysCommand::Revoke { id, json } => {
            let revoked = keys.revoke(&Actor::command_line(), &id).await?;
            if json { print(&describe(&revoked)) } else { say(&format!("{} is revoked", revoked.id)) }
        }
        KeysCommand::Rotate { id, overlap, json } => {
            let overlap = duration::parse(&overlap).map_err(|e| misuse(format!("--overlap: {e}")))?;
            let (key, secret) = keys.rotate(&Actor::command_line(), &id, overlap).await?;
            show_secret(&key, &secret, json)
        }
    })
}

pub(crate) fn tenants(shared: &Shared, command: TenantsCommand) -> anyhow::Result<ExitCode> {
    with(shared, async |keys| match command {
        TenantsCommand::Create { name, json } => {
            let made = keys.create_tenant(&Actor::command_line(), NewTenant { name, quota: None }).await?;
            show_tenants(&[made], json)
        }
        TenantsCommand::List { json } => show_tenants(&keys.tenants().await?, json),
    })
}

/// Opens the store of the state directory for one command.
fn with(shared: &Shared, work: impl AsyncFnOnce(&Keys) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    // Before root's rights go: the configuration may name a file that only root can read.
    let database = crate::serve::database(&loaded)?;
    let home = Home::visit(&loaded)?;
    let config = home.store(database, loaded.config.database.durability)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = Store::open(&config).await.context("the database could not be opened")?;
        let keys = Keys::new(store.clone(), home.pepper()?);
        let done = work(&keys).await;
        store.close().await;
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn create(keys: &Keys, wanted: CreateKey) -> anyhow::Result<()> {
    let tenant = match &wanted.tenant {
        Some(name) => find(keys, name).await?.id,
        None => TenantId::LOCAL,
    };
    let scopes: Scopes = wanted.scopes.parse().map_err(|e| misuse(format!("--scopes: {e}")))?;
    let expires_at = match &wanted.expires {
        Some(text) => {
            let after = duration::parse(text).map_err(|e| misuse(format!("--expires: {e}")))?;
            Some(Timestamp::now().after(after))
        }
        None => None,
    };
    let form = match wanted.form {
        Form::Native => KeyForm::Native,
        Form::E2b => KeyForm::E2b,
    };
    let (key, secret) = keys
        .create(&Actor::command_line(), NewKey { tenant, name: wanted.name, scopes, form, expires_at })
        .await?;
    show_secret(&key, &secret, wanted.json)
}

async fn find(keys: &Keys, name: &str) -> anyhow::Result<TenantRow> {
    let all = keys.tenants().await?;
    let id = name.parse::<TenantId>().ok();
    all.into_iter()
        .find(|tenant| tenant.name == name || Some(tenant.id) == id)
        .ok_or_else(|| misuse(format!("there is no tenant {name}; `sandstorm tenants create` makes one")))
}

fn show_secret(key: &KeyView, secret: &str, json: bool) -> anyhow::Result<()> {
    if json {
        return print(&serde_json::json!({ "id": key.id, "key": secret }));
    }
    // The key alone, so that `KEY=$(sandstorm keys create)` holds it and nothing else.
    say(secret)?;
    note(&format!("this is key {}; it is not shown again", key.id));
    Ok(())
}

fn show_keys(keys: &[KeyView], json: bool) -> anyhow::Result<()> {
    if json {
        return print(&serde_json::json!({ "keys": keys.iter().map(describe).collect::<Vec<_>>() }));
    }
    let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |time| time.to_string());
    for key in keys {
        let state = match (key.revoked_at, key.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(at)) if at <= Timestamp::now() => "expired",
            _ => "good",
        };
        say(&format!(
            "{:<16} {:<8} {:<26} {:<26} {}",
            key.id,
            state,
            key.scopes.to_string(),
            time(key.last_used_at),
            safe(&key.name)
        ))?;
    }
    Ok(())
}

fn describe(key: &KeyView) -> serde_json::Value {
    serde_json::json!({
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "scopes": key.scopes.to_string(),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    })
}

fn show_tenants(tenants: &[TenantRow], json: bool) -> anyhow::Result<()> {
    if json {
        let one = |tenant: &TenantRow| serde_json::json!({ "id": tenant.id, "name": tenant.name, "quota": tenant.quota, "created_at": tenant.created_at });
        return print(&serde_json::json!({ "tenants": tenants.iter().map(one).collect::<Vec<_>>() }));
    }
    for tenant in tenants {
        say(&format!("{} {}", tenant.id, safe(&tenant.name)))?;
    }
    Ok(())
}

fn print(value: &serde_json::Value) -> anyhow::Result<()> {
    say(&value.to_string())
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(Into::into)
}
