//! Indexes of gems and of npm packages that are made here, served over HTTP, and remember who asked for what.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{Place, binary};

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Index {
    port: u16,
    shared: Arc<Shared>,
    server: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    files: Place,
    requests: Mutex<Vec<String>>,
    redirects: Mutex<BTreeMap<String, String>>,
    /// What must be in the header of every request, where anything must.
    authorization: Mutex<Option<String>>,
    over: AtomicBool,
}

impl Index {
    pub(crate) fn start() -> Self {
        Self::serving(|dir, _| make_gems(dir))
    }

    /// A registry with the npm package `greeting`, which needs `helper` and brings the program `greet`.
    pub(crate) fn of_npm() -> Self {
        Self::serving(make_npm_packages)
    }

    /// Serves what `fill` makes in a folder, given the port.
    fn serving(fill: impl FnOnce(&Path, u16)) -> Self {
        // The binary is copied before the first program is started: one that is forked in the middle of it would hold the
        // copy open for writing, and nobody could execute it.
        binary();
        let files = Place::new();
        // Not on the loopback address alone: the machine's own name need not lead there.
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        fill(files.path(), port);
        let shared = Arc::new(Shared {
            files,
            requests: Mutex::default(),
            redirects: Mutex::default(),
            authorization: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.answer(stream));
            }
        });
        Self { port, shared, server: Some(server) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self, path: &str) -> String {
        address(self.port, path)
    }

    /// A configuration with this index.
    pub(crate) fn configuration(&self, manager: &str) -> String {
        let text = format!("packages:\n  {manager}:\n    index: {}\n", self.address(""));
        self.shared.files.write("configuration.yaml", text).to_str().unwrap().to_owned()
    }

    /// The same, with another host that installing may reach.
    pub(crate) fn configuration_with(&self, manager: &str, host: &str) -> String {
        let text =
            format!("packages:\n  {manager}:\n    index: {}\n    hosts: [\"{host}\"]\n", self.address(""));
        self.shared.files.write("with-another-host.yaml", text).to_str().unwrap().to_owned()
    }

    pub(crate) fn redirect(&self, from: &str, to: &str) {
        self.shared.redirects.lock().unwrap().insert(from.to_owned(), to.to_owned());
    }

    /// From now on only whoever sends this header is served.
    pub(crate) fn protect(&self, authorization: &str) {
        *self.shared.authorization.lock().unwrap() = Some(authorization.to_owned());
    }

    /// Serves one file under the name of another.
    pub(crate) fn replace(&self, name: &str, by: &str) {
        let dir = self.shared.files.path();
        std::fs::copy(dir.join(by), dir.join(name)).unwrap();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(crate) fn asked_for(&self, name: &str) -> usize {
        self.requests().iter().filter(|path| path.ends_with(name)).count()
    }
}

/// The address by which a build knows this machine.
pub(crate) fn address(port: u16, path: &str) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    format!("http://{}:{port}/{path}", name.trim())
}

impl Drop for Index {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the server, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

impl Shared {
    /// One request, one answer.
    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let Some(first) = lines.next() else { return };
        let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if method == "GET" {
            self.requests.lock().unwrap().push(path.to_owned());
        }
        let redirect = self.redirects.lock().unwrap().get(path).cloned();
        let content = std::fs::read(self.files.path().join(path.trim_start_matches('/')));
        let wanted = self.authorization.lock().unwrap().clone();
        let known = wanted.is_none_or(|wanted| headers.contains(&format!("Authorization: {wanted}")));
        let (head, body) = match (redirect, content) {
            _ if !known => {
                ("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"gems\"".to_owned(), Vec::new())
            }
            (Some(to), _) => (format!("302 Found\r\nLocation: {to}"), Vec::new()),
            (None, Ok(content)) => ("200 OK".to_owned(), content),
            (None, Err(_)) => ("404 Not Found".to_owned(), Vec::new()),
        };
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let body = if method == "HEAD" { &[] } else { body.as_slice() };
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    }
}

/// `greeting`, which needs `helper`; and `native`, which would run code to be installed.
fn make_gems(dir: &Path) {
    let gem = |name: &str, version: &str, code: &str, more: &str| {
        let source = dir.join(format!("source-{name}"));
        std::fs::create_dir_all(source.join("lib")).unwrap();
        std::fs::write(source.join(format!("lib/{name}.rb")), code).unwrap();
        std::fs::write(source.join("extconf.rb"), "abort 'this must not run'\n").unwrap();
        let specification = format!(
            "Gem::Specification.new do |s|\n  s.name = '{name}'\n  s.version = '{version}'\n  s.summary = 'a test'\n  \
             s.authors = ['Sandstorm']\n  s.files = ['lib/{name}.rb', 'extconf.rb']\n  {more}\nend\n"
        );
        std::fs::write(source.join("it.gemspec"), specification).unwrap();
        let target = dir.join(format!("gems/{name}-{version}.gem"));
        let mut build = Command::new("gem");
        build
            .args(["build", "--silent", "--force", "it.gemspec", "--output"])
            .arg(target)
            .current_dir(source);
        succeed(&mut build);
    };
    std::fs::create_dir_all(dir.join("gems")).unwrap();
    gem("helper", "0.2.0", "module Helper\n  NAME = 'helper'\nend\n", "");
    let greeting =
        "require 'helper'\nmodule Greeting\n  def self.text = \"hello from #{Helper::NAME}\"\nend\n";
    gem("greeting", "1.0.0", greeting, "s.add_dependency 'helper', '~> 0.2'");
    gem("native", "1.0.0", "", "s.extensions = ['extconf.rb']");
    succeed(Command::new("gem").args(["generate_index", "--quiet", "--directory"]).arg(dir));
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `greeting`, which needs `helper` and has an install script that must not run.
fn make_npm_packages(dir: &Path, port: u16) {
    let package = |name: &str, more: &str, files: &[(&str, &str)]| {
        let source = dir.join(format!("source-{name}"));
        std::fs::create_dir_all(source.join("package")).unwrap();
        let manifest = format!("{{\"name\": \"{name}\", \"version\": \"1.0.0\"{more}}}");
        for (file, text) in files.iter().chain(&[("package.json", manifest.as_str())]) {
            std::fs::write(source.join("package").join(file), text).unwrap();
        }
        let archive = format!("{name}-1.0.0.tgz");
        let mut pack = Command::new("tar");
        pack.arg("-czf").arg(dir.join(&archive)).arg("-C").arg(&source).arg("package");
        succeed(&mut pack);
        let sum = Command::new("sha1sum").arg(dir.join(&archive)).output().unwrap();
        let sum = String::from_utf8(sum.stdout).unwrap()[..40].to_owned();
        let tarball = address(port, &archive);
        let dist = format!("\"dist\": {{\"tarball\": \"{tarball}\", \"shasum\": \"{sum}\"}}");
        let described = format!(
            "{{\"name\": \"{name}\", \"dist-tags\": {{\"latest\": \"1.0.0\"}}, \"versions\": {{\"1.0.0\": \
             {{\"name\": \"{name}\", \"version\": \"1.0.0\", {dist}{more}}}}}}}"
        );
        std::fs::write(dir.join(name), described).unwrap();
    };
    package("helper", "", &[("index.js", "exports.name = 'helper'\n")]);
    let more = ", \"bin\": {\"greet\": \"greet.js\"}, \"dependencies\": {\"helper\": \"^1.0.0\"}, \
                \"scripts\": {\"install\": \"exit 1\"}, \"hasInstallScript\": true";
    let text = "exports.text = 'hello from ' + require('helper').name\n";
    let program = "#!/usr/bin/env node\nconsole.log(require('./index.js').text)\n";
    package("greeting", more, &[("index.js", text), ("greet.js", program)]);
}
