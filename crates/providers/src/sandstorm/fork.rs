//! A living sandbox there goes on in another one.

use std::sync::Arc;

use sandstorm_client::NewFork;
use sandstorm_provider::{Error, ForkOptions, Forked, NotCarried, OpContext, Result};
use sandstorm_types::{ErrorKind, ExecId, Limits, NetworkPolicy, SandboxId};
use tokio_util::sync::CancellationToken;

use super::client::Far;
use super::error::{of, plain, senseless, words};
use super::places::{Making, Place};
use super::view;

const NOT_CARRIED: &str = "the API of the server does not carry a program under a new id";

impl Far {
    pub(super) async fn fork(
        self: &Arc<Self>,
        cx: &OpContext,
        id: &SandboxId,
        opts: ForkOptions,
    ) -> Result<Forked> {
        cx.check("fork").map_err(Error::with_not_started)?;
        self.check_wanted(&opts.spec, &opts.create)?;
        let making = self.places.begin(opts.create.id)?;
        let gone = CancellationToken::new();
        let _on_drop = gone.clone().drop_guard();
        let (far, id) = (Arc::clone(self), *id);
        let work = async move { far.make_fork(&id, opts, making, &gone).await };
        cx.run("fork", self.tasks.complete(work)).await
    }

    async fn make_fork(
        self: Arc<Self>,
        id: &SandboxId,
        opts: ForkOptions,
        making: Making,
        gone: &CancellationToken,
    ) -> Result<Forked> {
        let source = self.place(id).await?;
        let left = self.left_behind(&opts).await?;
        self.check_same(&source, &opts).await?;
        let new = NewFork {
            count: 1,
            labels: Some(self.labels(&opts.spec.labels, opts.create.id)),
            lifetime: Some(self.lease),
            // Interpreters that others run there are not ours to carry or to miss.
            allow_partial: true,
        };
        let key = format!("{}-fork", self.key(opts.create.id));
        let forks = match self.client.fork_sandbox_once(source.theirs(), &new, &key).await.map_err(of) {
            Ok(forks) => forks,
            Err(error) => {
                if !error.is_not_started() {
                    making.unsure();
                }
                return Err(error);
            }
        };
        let Ok([fork]) = <[_; 1]>::try_from(forks) else {
            making.unsure();
            return Err(senseless("another number of forks was made than asked for"));
        };
        let Some(theirs) = fork.sandbox else {
            let told = fork.problem.map(|problem| (kind(&problem.code), plain(&problem.detail)));
            let (kind, detail) = told.unwrap_or((ErrorKind::Provider, "the fork was not made".to_owned()));
            return Err(words(kind, &detail));
        };
        let sandbox = self.made(&opts.spec, theirs, making, gone).await?;
        Ok(Forked { sandbox, carried: Vec::new(), not_carried: left })
    }

    /// The programs that would have to be carried: none can be.
    async fn left_behind(self: &Arc<Self>, opts: &ForkOptions) -> Result<Vec<NotCarried>> {
        let mut left = Vec::new();
        for (from, _) in &opts.execs {
            self.running(from).await?;
            if !opts.partial {
                return Err(not_carried(from));
            }
            left.push(NotCarried { what: format!("exec {from}"), why: NOT_CARRIED.to_owned() });
        }
        Ok(left)
    }

    /// A fork has what its source has: another wish is refused, not left out.
    async fn check_same(&self, source: &Place, opts: &ForkOptions) -> Result<()> {
        let theirs = self.client.sandbox(source.theirs()).await.map_err(of)?;
        let limits = view::part::<Limits>(&theirs, "limits", "the limits cannot be read")?;
        let network = view::part::<NetworkPolicy>(&theirs, "network", "the network policy cannot be read")?;
        let cpu_time = opts.spec.limits.cpu_time.or(limits.cpu_time);
        if limits != (Limits { cpu_time, ..opts.spec.limits }) || network != opts.spec.network {
            let message = "a fork on the server has the limits and the network of its source";
            return Err(Error::new(ErrorKind::Conflict, message).with_not_started());
        }
        Ok(())
    }
}

fn not_carried(exec: &ExecId) -> Error {
    Error::new(ErrorKind::Conflict, NOT_CARRIED).with("exec", exec).with_not_started()
}

fn kind(code: &str) -> ErrorKind {
    ErrorKind::ALL.into_iter().find(|kind| kind.code() == code).unwrap_or(ErrorKind::Provider)
}
