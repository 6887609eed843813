//! Living sandboxes that go on in others, with real interpreters.

use serde_json::{Value, json};

use super::client::ask;
use super::faults::{kill, marked, parent_of};
use super::instance::Server;
use super::tenants::{new_key, on_state};
use crate::support::{Who, eventually, stderr, stdout};

/// A Python context in a sandbox.
struct Place<'a> {
    server: &'a Server,
    sandbox: String,
    context: String,
}

impl<'a> Place<'a> {
    fn new(server: &'a Server) -> Self {
        let sandbox = server.sandbox(&json!({ "lifetime": "1h" }));
        let made = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
        Self { server, sandbox, context: made["id"].as_str().unwrap().to_owned() }
    }

    /// The place that an entry of a fork's answer tells of.
    #[track_caller]
    fn of(server: &'a Server, fork: &Value) -> Self {
        assert_eq!(fork["problem"], Value::Null, "{fork:#}");
        let sandbox = format!("/v1/sandboxes/{}", fork["sandbox"]["id"].as_str().unwrap());
        let context = fork["contexts"][0]["to"].as_str().unwrap_or_else(|| panic!("{fork:#}")).to_owned();
        Self { server, sandbox, context }
    }

    #[track_caller]
    fn cell(&self, code: &str) -> Value {
        let execute = format!("{}/contexts/{}/execute", self.sandbox, self.context);
        self.server.post(&execute, &json!({ "code": code })).expect(200)
    }

    /// Runs code that has to succeed; the value of its last expression.
    #[track_caller]
    fn eval(&self, code: &str) -> String {
        let cell = self.cell(code);
        assert_eq!(cell["status"], "ok", "{code}: {cell:#}");
        cell["results"][0]["data"]["text/plain"].as_str().unwrap_or_default().to_owned()
    }

    fn ask(&self, wishes: &Value) -> super::http::Answer {
        self.server.post(&format!("{}/fork", self.sandbox), wishes)
    }

    #[track_caller]
    fn fork(&self) -> Place<'a> {
        let forks = self.ask(&json!({})).expect(201);
        assert_eq!(forks["forks"][0]["not_carried"], json!([]), "{forks:#}");
        Self::of(self.server, &forks["forks"][0])
    }
}

#[test]
fn memory_files_and_folder_go_on_and_each_one_is_its_own() {
    let server = Server::start(Who::Root);
    let version = server.get("/v1/version").expect(200);
    assert_eq!(version["capabilities"]["live_fork"], true, "{version:#}");
    let source = Place::new(&server);
    source.eval("import os, json, decimal\nos.makedirs('/home/user/deep/er')\nos.chdir('/home/user/deep')");
    source.eval("open('/workspace/a', 'w').write('then')\nopen('/tmp/b', 'w').write('tmp')\nopen('/dev/shm/c', 'w').write('shm')");
    source.eval("os.symlink('/usr/bin/env', '/workspace/link')\nos.chmod('/tmp/b', 0o640)");
    source.eval("x = 41\nwords = ['a'] * 3\ndef more(n):\n    return x + n\ngen = (n * n for n in range(10))\nnext(gen); next(gen)");
    let fork = source.fork();
    assert_ne!((&fork.sandbox, &fork.context), (&source.sandbox, &source.context));
    assert_eq!(
        fork.eval("more(1), words, os.getcwd(), next(gen)"),
        "(42, ['a', 'a', 'a'], '/home/user/deep', 4)"
    );
    let read = "[open(p).read() for p in ('/workspace/a', '/tmp/b', '/dev/shm/c')]";
    assert_eq!(fork.eval(read), "['then', 'tmp', 'shm']");
    let links = "(os.readlink('/workspace/link'), oct(os.stat('/tmp/b').st_mode & 0o777), os.listdir('.'))";
    assert_eq!(fork.eval(links), "('/usr/bin/env', '0o640', ['er'])");
    assert_eq!(fork.eval("str(decimal.Decimal('0.1') + decimal.Decimal('0.2'))"), "'0.3'");
    // Each has its own from here on.
    fork.eval("x = 'fork'\nopen('/workspace/a', 'w').write('fork')\nwords.append('b')");
    source.eval("x = 'source'\nopen('/tmp/b', 'w').write('source')");
    assert_eq!(source.eval("x, words, open('/workspace/a').read()"), "('source', ['a', 'a', 'a'], 'then')");
    assert_eq!(fork.eval("x, words, open('/tmp/b').read()"), "('fork', ['a', 'a', 'a', 'b'], 'tmp')");
    assert_eq!(source.eval("next(gen)"), "4");
    // It counts on, prints, raises, is interrupted and restarted like any other.
    let view = server.get(&format!("{}/contexts/{}", fork.sandbox, fork.context)).expect(200);
    assert_eq!((&view["state"], &view["language"]), (&json!("idle"), &json!("python")));
    assert!(view["execution_count"].as_u64().unwrap() > 5, "{view:#}");
    let printed = fork.cell("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 / 0");
    assert_eq!((&printed["stdout"], &printed["stderr"]), (&json!("out\n"), &json!("err\n")), "{printed:#}");
    assert_eq!(printed["error"]["name"], "ZeroDivisionError");
    let slow = json!({ "code": "import time\ntime.sleep(60)", "timeout": "2s" });
    let slow = server.post(&format!("{}/contexts/{}/execute", fork.sandbox, fork.context), &slow).expect(200);
    assert_eq!(slow["status"], "timeout", "{slow:#}");
    assert_eq!(fork.eval("x"), "'fork'");
    // Programs of its own run beside it, and it can be forked in its turn.
    assert_eq!(server.exec(&fork.sandbox, "cat a; ls /proc/self/fd | wc -l")["stdout"], "fork4\n");
    assert_eq!(fork.fork().eval("x, more('!') if False else words[-1]"), "('fork', 'b')");
    // What was deleted takes nothing with it.
    assert_eq!(server.delete(&source.sandbox).status, 204);
    assert_eq!(fork.eval("x"), "'fork'");
    server.post(&format!("{}/contexts/{}/restart", fork.sandbox, fork.context), &json!({})).expect(200);
    assert_eq!(fork.cell("x")["error"]["name"], "NameError");
}

#[test]
fn ten_at_once_are_all_different() {
    let server = Server::start(Who::Root);
    let source = Place::new(&server);
    let second =
        server.post(&format!("{}/contexts", source.sandbox), &json!({ "language": "python" })).expect(201);
    let second = Place {
        context: second["id"].as_str().unwrap().to_owned(),
        sandbox: source.sandbox.clone(),
        ..source
    };
    let source = Place { context: source.context.clone(), sandbox: source.sandbox.clone(), ..second };
    source.eval("data = list(range(100_000))\nblob = bytes(5 << 20)");
    second.eval("other = 'second'");
    let answer = source.ask(&json!({ "count": 10, "labels": { "of": "ten" } })).expect(201);
    let forks = answer["forks"].as_array().unwrap();
    assert_eq!(forks.len(), 10);
    for (n, fork) in forks.iter().enumerate() {
        assert_eq!(fork["contexts"].as_array().unwrap().len(), 2, "{fork:#}");
        let to = |source: &str| {
            let pair = fork["contexts"].as_array().unwrap().iter().find(|pair| pair["from"] == source);
            Place { context: pair.unwrap()["to"].as_str().unwrap().to_owned(), ..Place::of(&server, fork) }
        };
        assert_eq!(
            to(&source.context).eval(&format!("data[7] = {n}\nlen(data), len(blob)")),
            "(100000, 5242880)"
        );
        assert_eq!(to(&second.context).eval("other"), "'second'");
    }
    for (n, fork) in forks.iter().enumerate() {
        let first =
            fork["contexts"].as_array().unwrap().iter().find(|pair| pair["from"] == source.context.as_str());
        let place =
            Place { context: first.unwrap()["to"].as_str().unwrap().to_owned(), ..Place::of(&server, fork) };
        assert_eq!(place.eval("data[7]"), n.to_string());
    }
    assert_eq!(source.eval("data[7]"), "7");
    let listed = server.get("/v1/sandboxes?label=of=ten").expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 10);
}

#[test]
fn what_cannot_be_carried_is_refused_in_words_or_named() {
    let server = Server::start(Who::Root);
    let alive = || server.get("/v1/sandboxes").expect(200)["items"].as_array().unwrap().len();
    let cases = [
        (
            "import threading, time\nt = threading.Thread(target=time.sleep, args=(600,), daemon=True)\nt.start()",
            "thread",
        ),
        ("f = open('/workspace/held', 'w')", "/workspace/held"),
        ("import socket\ns = socket.socket()", "socket"),
        ("import subprocess\np = subprocess.Popen(['sleep', '600'])", "child"),
    ];
    for (code, word) in cases {
        let source = Place::new(&server);
        source.eval("x = 1");
        source.eval(code);
        let before = alive();
        let refused = source.ask(&json!({ "count": 3 })).expect(409);
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(word), "{word}: {detail}");
        assert_eq!(alive(), before, "{word}: a refused fork left a sandbox");
        let partial = source.ask(&json!({ "allow_partial": true })).expect(201);
        let fork = &partial["forks"][0];
        assert_eq!(fork["contexts"], json!([]), "{fork:#}");
        let left = fork["not_carried"].as_array().unwrap();
        let named = left.iter().find(|left| left["what"] == format!("context {}", source.context));
        assert!(named.is_some_and(|left| left["why"].as_str().unwrap().contains(word)), "{word}: {fork:#}");
        // The source noticed nothing.
        assert_eq!(source.eval("x"), "1");
        for path in [&source.sandbox, &format!("/v1/sandboxes/{}", fork["sandbox"]["id"].as_str().unwrap())] {
            server.delete(path);
        }
    }
}

#[test]
fn programs_beside_the_contexts_are_named() {
    let server = Server::start(Who::Root);
    let source = Place::new(&server);
    source.eval("x = 1");
    let body = json!({ "command": "sleep 600", "background": true });
    let program = server.post(&format!("{}/exec", source.sandbox), &body).expect(202);
    let answer = source.ask(&json!({})).expect(201);
    let left = answer["forks"][0]["not_carried"].to_string();
    assert!(left.contains(program["id"].as_str().unwrap()), "{left}");
    let fork = Place::of(&server, &answer["forks"][0]);
    assert_eq!(fork.eval("x"), "1");
    assert!(
        !server.exec(&fork.sandbox, "cat /proc/[0-9]*/cmdline")["stdout"].as_str().unwrap().contains("600")
    );
    // One that its shell left behind is nobody's exec.
    server.delete(&format!("{}/execs/{}", source.sandbox, program["id"].as_str().unwrap()));
    server.exec(&source.sandbox, "setsid sleep 601 >/dev/null 2>&1 &");
    let answer = source.ask(&json!({})).expect(201);
    let left = answer["forks"][0]["not_carried"].to_string();
    assert!(left.contains("processes"), "{left}");
    // A context of another language.
    let script = server.post(&format!("{}/contexts", source.sandbox), &json!({ "language": "javascript" }));
    if script.status == 201 {
        let id = script.json()["id"].as_str().unwrap().to_owned();
        let answer = source.ask(&json!({})).expect(201);
        let left = answer["forks"][0]["not_carried"].to_string();
        assert!(left.contains(&format!("context {id}")), "{left}");
    }
}

#[test]
fn a_busy_context_is_waited_for() {
    let server = Server::start(Who::Root);
    let source = Place::new(&server);
    let code = "import time\ntime.sleep(0.5)\nx = 'done'";
    let body = json!({ "context": source.context, "code": code, "background": true });
    server.post(&format!("{}/exec", source.sandbox), &body).expect(202);
    let fork = source.fork();
    assert_eq!(fork.eval("x"), "'done'");
    let body = json!({ "context": source.context, "code": "time.sleep(600)", "background": true });
    server.post(&format!("{}/exec", source.sandbox), &body).expect(202);
    let refused = source.ask(&json!({})).expect(409);
    assert!(refused["detail"].as_str().unwrap().contains("busy"), "{refused:#}");
    server.post(&format!("{}/contexts/{}/interrupt", source.sandbox, source.context), &json!({}));
    eventually("it is idle", || {
        server.get(&format!("{}/contexts/{}", source.sandbox, source.context)).json()["state"] == "idle"
    });
    assert_eq!(source.fork().eval("x"), "'done'");
}

#[test]
fn others_and_those_without_quota_get_nothing() {
    let server = Server::with(Who::Root, &[("SANDSTORM_QUOTAS_SANDBOXES", "3")], &[]);
    let source = Place::new(&server);
    source.eval("secret = 1");
    on_state(&server, &["tenants", "create", "another"]);
    let (_, foreign) = new_key(&server, &["--tenant", "another", "--scopes", "run,sandbox,files"]);
    let request = super::http::Request::new("POST", format!("{}/fork", source.sandbox)).json(&json!({}));
    let stranger = server.send(&request.header("authorization", &format!("Bearer {foreign}")));
    assert_eq!(stranger.status, 404, "{}", stranger.text());
    assert_eq!(source.ask(&json!({ "count": 3 })).expect(429)["code"], "quota");
    assert_eq!(source.ask(&json!({ "count": 2 })).expect(201)["forks"].as_array().unwrap().len(), 2);
    assert_eq!(source.ask(&json!({})).expect(429)["code"], "quota");
}

#[test]
fn forks_outlive_their_server() {
    let mut server = Server::start(Who::Root);
    let source = Place::new(&server);
    source.eval("x = [1]");
    let (used, fresh) = (source.fork(), source.fork());
    used.eval("x.append(2)");
    let code = "import time\nopen('began', 'w').close()\ntime.sleep(1)\nx.append(3)\nprint('said')";
    let running = json!({ "context": used.context, "code": code, "background": true });
    let exec = server.post(&format!("{}/exec", used.sandbox), &running).expect(202)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    // A cell that its interpreter never got is lost with the server.
    eventually("its cell runs", || {
        server.exec(&used.sandbox, "ls")["stdout"].as_str().unwrap().contains("began")
    });
    let places = [used, fresh, source].map(|place| (place.sandbox, place.context));
    server.kill();
    server.restart();
    let [used, fresh, source] = places.map(|(sandbox, context)| Place { server: &server, sandbox, context });
    eventually("its cell is done", || {
        let status = server.get(&format!("{}/execs/{exec}", used.sandbox)).json()["status"].clone();
        assert!(status == "ok" || status.is_null(), "{status}");
        status == "ok"
    });
    let view = server.get(&format!("{}/execs/{exec}", used.sandbox)).expect(200);
    assert_eq!(view["result"]["stdout"], "said\n", "{view:#}");
    assert_eq!(used.eval("x"), "[1, 2, 3]");
    assert_eq!(fresh.eval("x"), "[1]");
    assert_eq!(source.eval("x"), "[1]");
    // And can be forked by the new server.
    assert_eq!(used.fork().eval("x"), "[1, 2, 3]");
    assert_eq!(source.fork().eval("x"), "[1]");
}

#[test]
fn a_server_that_dies_over_a_fork_leaves_none_of_it() {
    let mut server = Server::start(Who::Root);
    let source = Place::new(&server);
    // Much to copy, so that there is time to die.
    source.eval("x = 'source'\nblob = b'x' * (30 << 20)");
    let (sandbox, context) = (source.sandbox.clone(), source.context.clone());
    let alive = |server: &Server| server.get("/v1/sandboxes").expect(200)["items"].as_array().unwrap().len();
    let asked = server.request("POST", format!("{sandbox}/fork")).json(&json!({ "count": 12 }));
    let port = server.port;
    let asking = std::thread::spawn(move || super::http::open(port, &asked).is_ok());
    eventually("copies are being made", || alive(&server) > 3);
    server.kill();
    assert!(!asking.join().unwrap(), "the fork was over before the server was killed");
    server.restart();
    eventually("only the source is left", || alive(&server) == 1);
    let source = Place { server: &server, sandbox, context };
    assert_eq!(source.eval("x"), "'source'");
    // A copy for the dead server may still be under way, and while it is the interpreter cannot be copied once more.
    let mut forks = None;
    eventually("it can be forked", || {
        let answer = source.ask(&json!({}));
        assert!([201, 409].contains(&answer.status), "{}", answer.text());
        forks = (answer.status == 201).then(|| answer.json());
        forks.is_some()
    });
    let fork = Place::of(&server, &forks.unwrap()["forks"][0]);
    assert_eq!(fork.eval("x, len(blob) >> 20"), "('source', 30)");
}

#[test]
fn the_command_prints_ids_and_says_what_it_left() {
    let server = Server::start(Who::Root);
    let source = Place::new(&server);
    source.eval("x = 5");
    server.post(&format!("{}/exec", source.sandbox), &json!({ "command": "sleep 600", "background": true }));
    let id = source.sandbox.rsplit('/').next().unwrap();
    let ask = |args: &[&str]| ask(&server, &[&["sandbox", "fork", id], args].concat());
    let output = ask(&["--count", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().filter(|line| line.starts_with("sbx_")).count(), 2);
    assert!(stderr(&output).contains("not carried: exec "), "{}", stderr(&output));
    let output = ask(&["--json", "--label", "a=b", "--lifetime", "5m"]);
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(told["forks"][0]["sandbox"]["labels"], json!({ "a": "b" }));
    assert_eq!(Place::of(&server, &told["forks"][0]).eval("x"), "5");
    assert_eq!(ask(&["--count", "0"]).status.code(), Some(2));
}

#[test]
fn without_zygotes_it_says_so() {
    let server = Server::with(Who::Root, &[("SANDSTORM_POOL_ZYGOTES", "false")], &[]);
    assert_eq!(server.get("/v1/version").expect(200)["capabilities"]["live_fork"], false);
    let sandbox = server.sandbox(&json!({}));
    let refused = server.post(&format!("{sandbox}/fork"), &json!({})).expect(501);
    assert!(refused["detail"].as_str().unwrap().contains("live_fork"), "{refused:#}");
}

#[test]
fn a_copy_draws_other_numbers_than_its_source() {
    let server = Server::start(Who::Root);
    let source = Place::new(&server);
    source.cell("import random, tempfile, uuid");
    let (one, other) = (source.fork(), source.fork());
    for draw in ["random.random()", "next(tempfile._get_candidate_names())", "uuid.uuid4().hex"] {
        let mut drawn = [&source, &one, &other].map(|place| place.eval(draw));
        drawn.sort();
        assert!(drawn.windows(2).all(|pair| pair[0] != pair[1]), "{draw}: {drawn:?}");
    }
}

#[test]
fn a_context_that_could_not_be_forked_is_refused_in_words() {
    let server = Server::start(Who::Root);
    let source = Place::new(&server);
    let program = marked(&server, &source.sandbox, "sleep 98753");
    let launcher = parent_of(parent_of(program));
    // A program beside the contexts would be left out of a copy.
    kill(program);
    let is_zygote = |pid: &i32| {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.contains("/zygote/python.py")
    };
    let children = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    let zygotes: Vec<i32> =
        children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(is_zygote).collect();
    assert!(!zygotes.is_empty(), "{children}");
    for pid in zygotes {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
    let contexts = format!("{}/contexts", source.sandbox);
    let refused = server.post(&contexts, &json!({ "language": "python" }));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(
        refused.header("retry-after").is_some() && refused.text().contains("forked"),
        "{}",
        refused.text()
    );
    // The launcher gave that zygote up. The next one is as good as the first.
    let mut made = None;
    eventually("there is another", || {
        let answer = server.post(&contexts, &json!({ "language": "python" }));
        made = (answer.status == 201).then(|| answer.json()["id"].as_str().unwrap().to_owned());
        made.is_some()
    });
    // What came of the lost zygote cannot be copied any more, so only the new one is forked.
    let new = Place { context: made.unwrap(), sandbox: source.sandbox.clone(), ..source };
    assert_eq!(server.delete(&format!("{contexts}/{}", source.context)).status, 204);
    new.eval("x = 'new'");
    let mut copy = None;
    eventually("nothing of the old context is left", || {
        let forks = new.ask(&json!({})).expect(201);
        let whole = forks["forks"][0]["not_carried"] == json!([]);
        copy = whole.then(|| Place::of(&server, &forks["forks"][0]));
        whole
    });
    assert_eq!(copy.unwrap().eval("x"), "'new'");
}
