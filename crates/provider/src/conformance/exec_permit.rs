//! Nothing of a program is executed before it is permitted.

use sandstorm_types::{ErrorKind, SandboxId};
use tokio::sync::oneshot;

use super::trial::{Trial, Verdict, fails, same};
use super::{Case, case};
use crate::{Error, ExecRequest, Permit, ProviderExt, Result};

pub(super) const CASES: &[Case] = &[
    case!("exec_permit", a_program_waits_for_its_permit, needs[exec]),
    case!("exec_permit", a_program_that_is_refused_never_begins, needs[exec]),
];

fn marking(permit: Permit) -> ExecRequest {
    let mut req = ExecRequest::shell("echo begun > mark");
    req.permit = Some(permit);
    req
}

/// What the program left, if it began.
async fn mark(t: &Trial<'_>, id: &SandboxId) -> Result<Vec<u8>> {
    Ok(t.run(id, ExecRequest::shell("cat mark")).await?.stdout.to_vec())
}

async fn a_program_waits_for_its_permit(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let (give, given) = oneshot::channel::<()>();
    let permit =
        Permit::new(
            async move { given.await.map_err(|_| Error::new(ErrorKind::Internal, "nobody gives it")) },
        );
    let running = t.provider.exec_collect(&t.cx, &id, marking(permit));
    let looking = async {
        let before = mark(t, &id).await;
        let _ = give.send(());
        before
    };
    let (ran, before) = tokio::join!(running, looking);
    same("what it did before", before?, Vec::new())?;
    ran?;
    same("what it did after", mark(t, &id).await?, b"begun\n".to_vec())
}

async fn a_program_that_is_refused_never_begins(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let permit = Permit::new(async { Err(Error::new(ErrorKind::Quota, "not today")) });
    let refused = t.provider.exec(&t.cx, &id, marking(permit)).await;
    fails("a program without a permit", refused, ErrorKind::Quota)?;
    same("what it did", mark(t, &id).await?, Vec::new())
}
