//! What a client of the server can ask for, each as a case.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use super::http::{Answer, Connection, Request};
use super::language::{Language, RESULT};
use super::rounds::{Case, Subject};
use super::server::Server;

impl<F: FnMut() -> anyhow::Result<Duration>> Subject for F {
    fn sample(&mut self) -> anyhow::Result<Duration> {
        self()
    }
}

pub(super) type Made = anyhow::Result<Box<dyn Subject>>;
/// Something that a server may not have, and then why.
type MaybeMade = anyhow::Result<Result<Box<dyn Subject>, String>>;
/// Name, title for people, and how to make it.
type Kind<M> = (&'static str, &'static str, fn(&Server) -> M);

/// Every case of ours that is wanted.
pub(super) fn cases(server: &Server, wants: &dyn Fn(&str) -> bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for language in Language::ALL {
        let name = format!("fresh-{}", language.name());
        if wants(&name) {
            let title = format!("{}: sandstorm, fresh sandbox", language.name());
            cases.push(Case::new(name, title, true, fresh(server, language)));
        }
    }
    let more: [Kind<Made>; 5] = [
        ("context", "sandstorm, cell in a living context", context),
        ("exec", "sandstorm, command in a sandbox", exec),
        ("create", "sandstorm, create a sandbox", create),
        ("first", "sandstorm, create and first command", first_command),
        ("files", "sandstorm, write and read a file", files),
    ];
    for (name, title, make) in more.into_iter().filter(|(name, ..)| wants(name)) {
        cases.push(Case::new(name, title, true, make(server)));
    }
    let optional: [Kind<MaybeMade>; 2] = [
        ("numpy", "python: sandstorm, fresh sandbox, import numpy", numpy),
        ("fork", "sandstorm, live fork of a Python context", fork),
    ];
    for (name, title, make) in optional.into_iter().filter(|(name, ..)| wants(name)) {
        cases.push(match make(server) {
            Ok(Ok(subject)) => Case::new(name, title, true, Ok(subject)),
            Ok(Err(why)) => Case::skipped(name, title, why),
            Err(error) => Case::new(name, title, true, Err(error)),
        });
    }
    cases
}

/// The request for a fresh sandbox that prints.
pub(super) fn fresh_request(server: &Server, language: Language) -> Request {
    server.request("POST", "/v1/runs", &json!({"language": language.api_name(), "code": language.code()}))
}

/// A sandbox that lives for as long as the bench.
pub(super) fn sandbox_request(server: &Server) -> Request {
    server.request("POST", "/v1/sandboxes", &json!({"lifetime": 3600, "on_end": "delete"}))
}

fn fresh(server: &Server, language: Language) -> Made {
    let (mut connection, request) = (server.connect()?, fresh_request(server, language));
    Ok(Box::new(move || timed(&mut connection, &request, RESULT)))
}

fn context(server: &Server) -> Made {
    let mut connection = server.connect()?;
    let sandbox = new_sandbox(server, &mut connection)?;
    let (path, _) = new_context(server, &mut connection, &sandbox)?;
    let request = server.request("POST", &format!("{path}/execute"), &json!({"code": "print(1)"}));
    Ok(Box::new(move || timed(&mut connection, &request, RESULT)))
}

fn exec(server: &Server) -> Made {
    let mut connection = server.connect()?;
    let sandbox = new_sandbox(server, &mut connection)?;
    let request = exec_request(server, &sandbox);
    Ok(Box::new(move || timed(&mut connection, &request, RESULT)))
}

fn create(server: &Server) -> Made {
    let mut connection = server.connect()?;
    let (request, address) = (sandbox_request(server), server.address.clone());
    Ok(Box::new(move || {
        let began = Instant::now();
        let made = connection.send(&request)?;
        let took = began.elapsed();
        let target = path_of(&made.json()?)?;
        connection.send(&Request::new(&address, "DELETE", &target, b""))?.good()?;
        Ok(took)
    }))
}

fn first_command(server: &Server) -> Made {
    let mut connection = server.connect()?;
    let (request, address) = (sandbox_request(server), server.address.clone());
    let command = exec_body().to_string();
    Ok(Box::new(move || {
        let began = Instant::now();
        let target = path_of(&connection.send(&request)?.json()?)?;
        let exec = Request::new(&address, "POST", &format!("{target}/exec"), command.as_bytes());
        connection.send(&exec)?.holding(RESULT)?;
        let took = began.elapsed();
        connection.send(&Request::new(&address, "DELETE", &target, b""))?.good()?;
        Ok(took)
    }))
}

fn files(server: &Server) -> Made {
    let mut connection = server.connect()?;
    let sandbox = new_sandbox(server, &mut connection)?;
    let target = format!("{sandbox}/files?path=note.txt");
    let write = Request::new(&server.address, "PUT", &target, &[b'x'; 1024]);
    let read = Request::new(&server.address, "GET", &target, b"");
    Ok(Box::new(move || {
        let began = Instant::now();
        connection.send(&write)?.good()?;
        let content = connection.send(&read)?.good()?;
        let took = began.elapsed();
        anyhow::ensure!(content == [b'x'; 1024], "the file is not what was written");
        Ok(took)
    }))
}

fn numpy(server: &Server) -> MaybeMade {
    let mut connection = server.connect()?;
    let code = "import numpy; print(numpy.arange(2).sum())";
    let request = server.request("POST", "/v1/runs", &json!({"language": "python", "code": code}));
    let said = connection.send(&request)?.json()?;
    if said["stderr"].as_str().is_some_and(|words| words.contains("ModuleNotFoundError")) {
        return Ok(Err("numpy is not installed on this machine".to_owned()));
    }
    Ok(Ok(Box::new(move || timed(&mut connection, &request, RESULT))))
}

/// A fork of a small context; that its variables came along is checked with the first of them.
fn fork(server: &Server) -> MaybeMade {
    let mut connection = server.connect()?;
    let sandbox = new_sandbox(server, &mut connection)?;
    let (path, _) = new_context(server, &mut connection, &sandbox)?;
    let remember = server.request(
        "POST",
        &format!("{path}/execute"),
        &json!({"code": "kept = list(range(100)); print(1)"}),
    );
    connection.send(&remember)?.holding(RESULT)?;
    let request = server.request("POST", &format!("{sandbox}/fork"), &json!({"count": 1}));
    let answer = connection.send(&request)?;
    if matches!(answer.status, 404 | 405 | 501) {
        return Ok(Err(format!("this server cannot fork a living sandbox ({})", answer.status)));
    }
    let made = answer.json()?;
    let fork = &made["forks"][0];
    let (copy, context) = (path_of(&fork["sandbox"])?, text(&fork["contexts"][0], "to")?);
    let ask = server.request(
        "POST",
        &format!("{copy}/contexts/{context}/execute"),
        &json!({"code": "print(kept[1])"}),
    );
    connection.send(&ask)?.holding(RESULT).context("a fork does not have its source's variables")?;
    connection.send(&server.request("DELETE", &copy, &Value::Null))?.good()?;
    let address = server.address.clone();
    Ok(Ok(Box::new(move || {
        let began = Instant::now();
        let made = connection.send(&request)?;
        let took = began.elapsed();
        let target = path_of(&made.json()?["forks"][0]["sandbox"])?;
        connection.send(&Request::new(&address, "DELETE", &target, b""))?.good()?;
        Ok(took)
    })))
}

pub(super) fn exec_request(server: &Server, sandbox: &str) -> Request {
    server.request("POST", &format!("{sandbox}/exec"), &exec_body())
}

fn exec_body() -> Value {
    json!({"command": ["/bin/echo", "1"]})
}

/// The path of a new sandbox.
pub(super) fn new_sandbox(server: &Server, connection: &mut Connection) -> anyhow::Result<String> {
    path_of(&connection.send(&sandbox_request(server))?.json()?)
}

/// The path of a new Python context, and its id.
pub(super) fn new_context(
    server: &Server,
    connection: &mut Connection,
    sandbox: &str,
) -> anyhow::Result<(String, String)> {
    let target = format!("{sandbox}/contexts");
    let made = connection.send(&server.request("POST", &target, &json!({"language": "python"})))?.json()?;
    let id = text(&made, "id")?;
    Ok((format!("{target}/{id}"), id))
}

/// The path of a sandbox that the server described.
pub(super) fn path_of(sandbox: &Value) -> anyhow::Result<String> {
    Ok(format!("/v1/sandboxes/{}", text(sandbox, "id")?))
}

fn text(value: &Value, name: &str) -> anyhow::Result<String> {
    Ok(value[name].as_str().with_context(|| format!("the answer has no {name}: {value}"))?.to_owned())
}

/// One request; its answer has to hold `needle`.
pub(super) fn timed(
    connection: &mut Connection,
    request: &Request,
    needle: &str,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let answer: Answer = connection.send(request)?;
    let took = began.elapsed();
    answer.holding(needle)?;
    Ok(took)
}
