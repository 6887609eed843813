//! The way to the agent of a pod: its program is put there, then joined, over `exec` of the cluster's API.

use std::time::Duration;

use kube::api::{AttachParams, AttachedProcess};
use sandstorm_agent_client::{AGENT, AgentClient};
use sandstorm_provider::{Error, Result, Tasks};
use sandstorm_types::{ErrorKind, Retry, SandboxSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::cluster::Cluster;
use crate::error::{of, plain};
use crate::pod::{AGENT_DIR, CARRIER, CONTAINER, DOOR_DIR};

/// How long one step may take.
const STEP: Duration = Duration::from_secs(30);

/// Bytes that wait between the API and us, for each stream.
const BUFFER: usize = 256 * 1024;

/// Most words of a failed step that are read.
const MOST_WORDS: u64 = 4096;

/// Puts the agent where it belongs, by way of the container that can write there, unless it is there. The file appears at once and whole. It is asked for before it is sent, and
/// read to its end in any case: whoever sends to a program that does not read hears nothing from it either.
const PUT: &str = "cd \"$1\" || exit 1; [ -x agent ] && exit 0; echo send; \
    cat > agent.$$ && chmod 755 agent.$$ && mv agent.$$ agent && exit 0; cat > /dev/null; exit 1";

/// Connects to the agent of a pod.
pub(crate) async fn join(
    cluster: &Cluster,
    pod: &str,
    spec: &SandboxSpec,
    strict_filter: bool,
) -> Result<AgentClient> {
    step("put the agent into the pod", put(cluster, pod)).await?;
    let agent = step("join the agent", attach(cluster, pod, command(spec, strict_filter))).await?;
    step("hear from the agent", async { agent.ready().await.map_err(sandstorm_agent_client::lost) }).await?;
    // Nothing here outlives its connection: what an earlier one left is ended with its handles.
    agent.take_held().into_iter().for_each(|(_, handle)| handle.forget(true));
    Ok(agent)
}

async fn step<T>(name: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late =
        |_| Error::new(ErrorKind::Provider, "the pod did not answer in time").with_retry(Retry::Elsewhere);
    tokio::time::timeout(STEP, work)
        .await
        .map_err(late)
        .and_then(|done| done)
        .map_err(|error| error.with("step", name))
}

/// The pod is there, so a refusal now is not one of the sandbox.
fn refused(error: kube::Error) -> Error {
    let error = of(error);
    let kind = match error.kind() {
        kind @ (ErrorKind::Forbidden
        | ErrorKind::Unauthenticated
        | ErrorKind::Capacity
        | ErrorKind::Timeout) => kind,
        _ => ErrorKind::Provider,
    };
    Error::new(kind, "the pod cannot be spoken with").with_retry(Retry::Elsewhere).with_source(error)
}

async fn put(cluster: &Cluster, pod: &str) -> Result<()> {
    let params = AttachParams {
        container: Some(CARRIER.to_owned()),
        stdin: true,
        stdout: true,
        stderr: true,
        max_stdin_buf_size: Some(BUFFER),
        ..AttachParams::default()
    };
    let mut running =
        cluster.pods.exec(pod, ["/bin/sh", "-c", PUT, "sh", AGENT_DIR], &params).await.map_err(refused)?;
    let (stdin, stdout, stderr) = (running.stdin(), running.stdout(), running.stderr());
    let status = running.take_status();
    let send = async {
        let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else { return };
        // One that is there already is not asked for.
        if stdout.read_u8().await.is_ok() {
            let _ = stdin.write_all(AGENT).await;
        }
        let _ = stdin.shutdown().await;
        // Whatever else it says.
        let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
    };
    let hear = async {
        let mut words = String::new();
        if let Some(stderr) = stderr {
            let _ = stderr.take(MOST_WORDS).read_to_string(&mut words).await;
        }
        words
    };
    let end = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    // The end is not waited for by the sender: the script may end before anything was sent.
    let ended = tokio::select! {
        ended = async { tokio::join!(end, hear) } => ended,
        never = async { send.await; std::future::pending().await } => never,
    };
    match ended {
        (Some(status), _) if status.status.as_deref() == Some("Success") => Ok(()),
        (status, words) => {
            let said = status.and_then(|status| status.message).unwrap_or_default();
            Err(Error::new(ErrorKind::Provider, "the agent cannot be put into the pod")
                .with("said", plain(&words))
                .with("status", plain(&said)))
        }
    }
}

/// The command that joins the agent. An agent that it has to start gives its programs these limits and this filter.
fn command(spec: &SandboxSpec, strict_filter: bool) -> Vec<String> {
    let mut command = vec![
        format!("{AGENT_DIR}/agent"),
        "pod".to_owned(),
        "join".to_owned(),
        format!("{DOOR_DIR}/agent.sock"),
        spec.limits.processes.to_string(),
        spec.limits.open_files.to_string(),
    ];
    command.extend(spec.limits.cpu_time.map(|time| time.as_secs().to_string()));
    command.extend(strict_filter.then(|| "strict".to_owned()));
    command
}

async fn attach(cluster: &Cluster, pod: &str, command: Vec<String>) -> Result<AgentClient> {
    let params = AttachParams {
        container: Some(CONTAINER.to_owned()),
        stdin: true,
        stdout: true,
        stderr: false,
        max_stdin_buf_size: Some(BUFFER),
        max_stdout_buf_size: Some(BUFFER),
        ..AttachParams::default()
    };
    let running = cluster.pods.exec(pod, command, &params).await.map_err(refused)?;
    connect(running, &cluster.tasks)
        .map_err(|error| Error::new(ErrorKind::Internal, "no socket could be made").with_source(error))
}

/// The streams of the program as the socket that a client of an agent takes.
fn connect(mut running: AttachedProcess, tasks: &Tasks) -> std::io::Result<AgentClient> {
    let (ours, theirs) = UnixStream::pair()?;
    let agent = AgentClient::new(theirs.into_std()?.into(), tasks)?;
    let (stdin, stdout) = (running.stdin(), running.stdout());
    tasks.start("agent of a pod", async move {
        let (mut from_client, mut to_client) = ours.into_split();
        let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else { return };
        let out = tokio::io::copy(&mut from_client, &mut stdin);
        let back = tokio::io::copy(&mut stdout, &mut to_client);
        // The end of either is the end of both.
        tokio::select! {
            _ = out => {}
            _ = back => {}
        }
        let _ = stdin.shutdown().await;
        drop(to_client);
        drop(running);
    });
    Ok(agent)
}

/// Whether an address can be reached from inside a pod, asked of the agent's program there.
pub(crate) async fn reaches(
    cluster: &Cluster,
    pod: &str,
    address: std::net::SocketAddr,
    within: Duration,
) -> Result<bool> {
    let params = AttachParams {
        container: Some(CONTAINER.to_owned()),
        stdin: false,
        stdout: true,
        stderr: true,
        ..AttachParams::default()
    };
    let command = [
        format!("{AGENT_DIR}/agent"),
        "pod".to_owned(),
        "reach".to_owned(),
        address.to_string(),
        within.as_millis().to_string(),
    ];
    step("try the network", async {
        let mut running = cluster.pods.exec(pod, command, &params).await.map_err(refused)?;
        let status = match running.take_status() {
            Some(status) => status.await,
            None => None,
        };
        let status = status.ok_or_else(|| crate::error::senseless("a program without an end"))?;
        let failed = status.reason.as_deref() == Some("NonZeroExitCode");
        match status.status.as_deref() {
            Some("Success") => Ok(true),
            Some("Failure") if failed => Ok(false),
            _ => Err(crate::error::senseless("a program that did not run")),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_told_limits_and_filter() {
        let told = |cpu_time: Option<Duration>, strict_filter| {
            let mut spec = SandboxSpec::default();
            spec.limits.cpu_time = cpu_time;
            command(&spec, strict_filter)[1..].join(" ")
        };
        let plain = "pod join /run/sandstorm-door/agent.sock 256 1024";
        let seven = Some(Duration::from_secs(7));
        assert_eq!((told(None, false), told(None, true)), (plain.to_owned(), format!("{plain} strict")));
        assert_eq!(
            (told(seven, false), told(seven, true)),
            (format!("{plain} 7"), format!("{plain} 7 strict"))
        );
    }
}
