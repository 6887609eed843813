//! Web servers with and without TLS, on every address outside, and what they were asked for.

use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::support::Place;

#[derive(Debug)]
pub(crate) struct Web {
    requests: Mutex<Vec<String>>,
    tls: Arc<rustls::ServerConfig>,
}

impl Web {
    /// Servers with a certificate for both names that is written to `ca.pem`, for programs to trust.
    pub(super) fn new(place: &Place) -> Self {
        let (certificate, key) = (place.path().join("ca.pem"), place.path().join("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=a.test", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-addext", "subjectAltName=DNS:a.test,DNS:b.test"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
            .unwrap();
        Self { requests: Mutex::default(), tls: Arc::new(tls) }
    }

    /// What was asked for since the last time: `scheme host path`.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    pub(super) async fn serve(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        for port in [80, 443, 8080, 7300] {
            let listener = TcpListener::bind(("::", port)).await.unwrap();
            tasks.spawn(Arc::clone(self).accept(listener, port == 443));
        }
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, tls: bool) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let web = Arc::clone(&self);
            connections.spawn(async move {
                if tls {
                    if let Ok(stream) = TlsAcceptor::from(Arc::clone(&web.tls)).accept(stream).await {
                        web.converse("https", stream).await;
                    }
                } else {
                    web.converse("http", stream).await;
                }
            });
        }
    }

    /// Answers requests without a body until the client ends.
    async fn converse(&self, scheme: &str, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut path, mut host, mut line) = (String::new(), String::new(), String::new());
            while !matches!(stream.read_line(&mut line).await, Ok(0) | Err(_)) && line != "\r\n" {
                match line.split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("host") => {
                        host = value.trim().to_owned()
                    }
                    None => path = line.split(' ').nth(1).unwrap_or_default().to_owned(),
                    Some(_) => {}
                }
                line.clear();
            }
            if path.is_empty() {
                return;
            }
            self.requests.lock().unwrap().push(format!("{scheme} {host} {path}"));
            let head = match path.as_str() {
                "/redirect" => "302 Found\r\nLocation: http://b.test/stolen",
                _ => "200 OK",
            };
            let body = format!("{scheme} {host}");
            let answer = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}
