//! What an assistant waits for: `run_code` in a warm context, over pipes and over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::command::CommandLine;
use super::http::{Connection, Request};
use super::ours::Made;
use super::rounds::Case;
use super::server::Server;

const REVISION: &str = "2026-07-28";
/// Requests of that revision say what they are before anybody reads them.
const HEADERS: &str = "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
                       mcp-method: tools/call\r\nmcp-name: run_code\r\n";
/// As the structured part of an answer has it.
const PRINTED: &str = r#""stdout":"1\n""#;

/// Both, as far as wanted.
pub(super) fn cases(
    binary: &Path,
    folder: &Path,
    server: &Server,
    wants: &dyn Fn(&str) -> bool,
) -> Vec<Case> {
    let mut cases = Vec::new();
    if wants("mcp-pipes") {
        let title = "sandstorm mcp, run_code in a warm context over pipes";
        cases.push(Case::new("mcp-pipes", title, true, over_pipes(binary, folder)));
    }
    if wants("mcp-http") {
        let title = "sandstorm, run_code of MCP in a warm context over HTTP";
        cases.push(Case::new("mcp-http", title, true, over_http(server)));
    }
    cases
}

fn over_pipes(binary: &Path, folder: &Path) -> Made {
    let mut assistant = Assistant::start(binary, &folder.join("mcp"))?;
    let again = in_context(&assistant.ask(&first())?)?.to_string();
    Ok(Box::new(move || {
        let began = Instant::now();
        assistant.send(&again)?;
        let answer = assistant.receive()?;
        let took = began.elapsed();
        ensure!(answer.contains(PRINTED), "the answer does not hold what was printed: {answer}");
        Ok(took)
    }))
}

fn over_http(server: &Server) -> Made {
    let mut connection = server.connect()?;
    let request =
        |body: &Value| Request::with(&server.address, "POST", "/mcp", HEADERS, body.to_string().as_bytes());
    let answered = body_of(&mut connection, &request(&first()))?;
    let again = request(&in_context(&answered)?);
    Ok(Box::new(move || super::ours::timed(&mut connection, &again, PRINTED)))
}

/// The message in an answer, which may be an event of a stream.
fn body_of(connection: &mut Connection, request: &Request) -> anyhow::Result<Value> {
    let body = String::from_utf8(connection.send(request)?.good()?).context("the answer is no text")?;
    let data = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&body);
    serde_json::from_str(data).with_context(|| format!("the answer is no message: {body}"))
}

/// The call that makes the context.
fn first() -> Value {
    call(json!({ "code": "print(1)", "keep": "yes" }))
}

/// The same call in the context that an answer names.
fn in_context(answer: &Value) -> anyhow::Result<Value> {
    let made = &answer["result"]["structuredContent"];
    let handle = |name| made[name].as_str().with_context(|| format!("the answer has no {name}: {answer}"));
    Ok(call(
        json!({ "code": "print(1)", "sandbox_id": handle("sandbox_id")?, "context_id": handle("context_id")? }),
    ))
}

fn call(arguments: Value) -> Value {
    let about = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
    });
    let params = json!({ "name": "run_code", "arguments": arguments, "_meta": about });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

/// `sandstorm mcp`, as an assistant starts it.
#[derive(Debug)]
struct Assistant {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Assistant {
    fn start(binary: &Path, state: &Path) -> anyhow::Result<Self> {
        let line = CommandLine::from([binary]).and(["mcp", "--state-dir"]).and([state]);
        let mut command = line.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("sandstorm mcp could not be started")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Self { child, input, output })
    }

    fn ask(&mut self, message: &Value) -> anyhow::Result<Value> {
        self.send(&message.to_string())?;
        Ok(serde_json::from_str(&self.receive()?)?)
    }

    fn send(&mut self, message: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        Ok(input.write_all(format!("{message}\n").as_bytes())?)
    }

    fn receive(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "sandstorm mcp ended");
        Ok(line)
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        // It ends when nobody speaks to it any more, and takes its sandboxes along.
        drop(self.input.take());
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
