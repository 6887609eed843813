//! What this machine cannot enforce: found out by making a sandbox when a server starts, and said before it takes work.

use sandstorm_config::Config;
use sandstorm_provider::{CreateOptions, Error, OpContext, Provider};
use sandstorm_types::{Enforcement, ErrorKind, SandboxSpec, TenantId, Walls};

use crate::complaint::misuse;

/// How an ordinary user gets what is missing most often.
const OWN_GROUP: &str = "systemd-run --user --scope -p Delegate=yes sandstorm serve";

/// How a server holds what it cannot enforce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ability {
    pub(super) enforcement: Enforcement,
    /// What a person has to know before the first request, a line each.
    pub(super) notices: Vec<String>,
}

/// Who depends on this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// Only programs of this machine reach the server.
    pub(super) is_private: bool,
    /// Sandboxes can be elsewhere too.
    pub(super) has_others: bool,
    /// Why this process's own control group is of no use, where it was asked.
    pub(super) no_group: Option<&'a str>,
}

impl Ability {
    /// Makes a sandbox with the limits that everybody gets who asks for none, and sees what holds.
    ///
    /// Fails where no request could ever be served, and where the operator has to choose: without a word in the
    /// configuration a server that others reach is strict.
    pub(super) async fn find(
        provider: &dyn Provider,
        config: &Config,
        around: Circumstances<'_>,
    ) -> anyhow::Result<Self> {
        let refused = match try_with(provider, config, Enforcement::Strict).await {
            Ok(_) => return Ok(Self::plain(config.enforcement.unwrap_or(Enforcement::Strict))),
            Err(refused) => refused,
        };
        if refused.kind() != ErrorKind::Isolation {
            // Full, or busy: that says nothing about what can be enforced.
            tracing::warn!(error = %chain(&refused), "it could not be tried what this machine enforces");
            return Ok(Self::plain(config.enforcement.unwrap_or(Enforcement::Strict)));
        }
        match try_with(provider, config, Enforcement::BestEffort).await {
            Ok(walls) => Self::choose(config.enforcement, missing(&walls), around),
            Err(error) if around.has_others => {
                let notices = vec![format!("no sandbox can be made on this machine: {}", chain(&error))];
                Ok(Self { notices, ..Self::plain(config.enforcement.unwrap_or(Enforcement::Strict)) })
            }
            Err(error) => Err(anyhow::Error::from(error)
                .context("no sandbox can be made on this machine; `sandstorm doctor` says what to do")),
        }
    }

    fn plain(enforcement: Enforcement) -> Self {
        Self { enforcement, notices: Vec::new() }
    }

    fn choose(
        configured: Option<Enforcement>,
        missing: Vec<String>,
        around: Circumstances<'_>,
    ) -> anyhow::Result<Self> {
        let mut notices = vec!["this machine cannot enforce everything here:".to_owned()];
        notices.extend(missing.into_iter().map(|one| format!("  {one}")));
        let group = around.no_group.map(|why| format!(" ({why})")).unwrap_or_default();
        notices.push(format!(
            "to enforce it: start as root, or in a control group of your own{group} with `{OWN_GROUP}`; \
             `sandstorm doctor` says more"
        ));
        let (enforcement, say) = match configured {
            Some(Enforcement::BestEffort) => {
                (Enforcement::BestEffort, "sandboxes run without it, as `enforcement: best_effort` says")
            }
            Some(Enforcement::Strict) if around.has_others => {
                (Enforcement::Strict, "`enforcement: strict`: every sandbox goes to another provider")
            }
            None if around.is_private => (
                Enforcement::BestEffort,
                "sandboxes run without it, because only this machine reaches the server; `enforcement: strict` refuses \
                 them instead",
            ),
            Some(Enforcement::Strict) => {
                notices.push(
                    "`enforcement: strict` refuses every sandbox here; `best_effort` runs them without it"
                        .to_owned(),
                );
                return Err(misuse(notices.join("\n")));
            }
            None => {
                notices.push(
                    "other machines reach this server, so choose: `enforcement: best_effort` runs sandboxes without it, \
                     `strict` refuses them"
                        .to_owned(),
                );
                return Err(misuse(notices.join("\n")));
            }
        };
        notices.push(say.to_owned());
        Ok(Self { enforcement, notices })
    }
}

async fn try_with(
    provider: &dyn Provider,
    config: &Config,
    enforcement: Enforcement,
) -> Result<Walls, Error> {
    let cx = OpContext::new(TenantId::LOCAL);
    let spec = SandboxSpec { limits: config.limits, enforcement, ..SandboxSpec::default() };
    let options = CreateOptions { ephemeral: true, pooled: false, ..CreateOptions::default() };
    let id = options.id;
    let made = provider.create(&cx, &spec, options).await?;
    // What cannot be destroyed goes with the launcher.
    let _ = provider.destroy(&cx, &id).await;
    Ok(made.walls.unwrap_or_default())
}

/// What a sandbox lacked, with the reasons.
fn missing(walls: &Walls) -> Vec<String> {
    let limits = walls.limits.missing.iter().map(|limit| format!("{} limit: {}", limit.name, limit.reason));
    let walls = walls.missing.iter().map(|wall| format!("{}: {}", wall.name, wall.reason));
    limits.chain(walls).collect()
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        configured: Option<Enforcement>,
        is_private: bool,
        has_others: bool,
    ) -> anyhow::Result<Ability> {
        let around = Circumstances { is_private, has_others, no_group: Some("it is root's") };
        Ability::choose(configured, vec!["memory limit: no group".to_owned()], around)
    }

    #[test]
    fn what_is_missing_is_said_and_nobody_is_weakened_unasked() {
        let (strict, best) = (Some(Enforcement::Strict), Some(Enforcement::BestEffort));
        for (configured, is_private, has_others, held) in [
            (best, true, false, best),
            (best, false, false, best),
            (None, true, false, best),
            (None, false, false, None),
            (None, false, true, None),
            (strict, true, false, None),
            (strict, false, false, None),
            (strict, false, true, strict),
        ] {
            let chosen = choose(configured, is_private, has_others);
            let said = match &chosen {
                Ok(ability) => ability.notices.join("\n"),
                Err(error) => error.to_string(),
            };
            assert_eq!(
                chosen.ok().map(|ability| ability.enforcement),
                held,
                "{configured:?} {is_private} {has_others}"
            );
            for part in ["memory limit: no group", "it is root's", "systemd-run", "enforcement"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
    }
}
