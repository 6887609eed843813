//! Ways to reach the server: HTTP/2, TLS, Unix sockets, and its orderly end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use sandstorm_gateway::{GatewaySettings, Listener, ServeError, ServeLimits, ServeOptions, Tls, serve};
use sandstorm_provider::Closing;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::world::{PATIENCE, World, control_settings, eventually};

/// A certificate for `localhost` and its key, made for this run.
#[expect(clippy::disallowed_methods, reason = "a test starts a program, outside any wall")]
fn certificate() -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&chain)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (std::fs::read(chain).unwrap(), std::fs::read(key).unwrap())
}

fn plain_routes() -> axum::Router {
    axum::Router::new().route("/", axum::routing::get(async || "here"))
}

fn start(listener: Listener, options: ServeOptions) -> AbortOnDropHandle<()> {
    let work =
        async move { serve(vec![listener], plain_routes(), options, std::future::pending()).await.unwrap() };
    AbortOnDropHandle::new(TaskTracker::new().spawn(work))
}

fn ask(path: &str) -> Request<Empty<Bytes>> {
    Request::builder().uri(format!("http://localhost{path}")).body(Empty::new()).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a client of a test that ends with its runtime")]
async fn over_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
) -> (u16, String) {
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let answer = sender.send_request(ask(path)).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn http2_is_spoken_without_and_with_tls() {
    let world = World::new().await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (status, body) = over_http2(stream, "/v1/me").await;
    assert!(status == 401 && body.contains("unauthenticated"), "{status} {body}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (chain, key) = certificate();
    let tls = Some(Tls::from_pem(&chain, &key).unwrap());
    let _server = start(Listener::Tcp(listener), ServeOptions { tls, ..ServeOptions::default() });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&chain).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(over_http2(stream, "/").await, (200, "here".to_owned()));
    // Who does not speak TLS gets nothing.
    let mut plain = TcpStream::connect(address).await.unwrap();
    let mut said = Vec::new();
    tokio::io::AsyncWriteExt::write_all(&mut plain, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut said).await;
    assert!(!String::from_utf8_lossy(&said).contains("HTTP/1.1"));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a client of a test that ends with its runtime")]
async fn a_unix_socket_is_for_its_users() {
    let dir = tempfile::tempdir().unwrap();
    let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(dir.path()).unwrap());
    for (name, users, answered) in [("own", vec![own], true), ("others", vec![own + 1], false)] {
        let path = dir.path().join(name);
        let listener = Listener::Unix { listener: UnixListener::bind(&path).unwrap(), users };
        assert!(listener.is_local().unwrap());
        let _server = start(listener, ServeOptions::default());
        let stream = UnixStream::connect(&path).await.unwrap();
        let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let request = Request::builder().uri("/").header("host", "x").body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(sender.send_request(request).await.is_ok(), answered, "{name}");
    }
}

#[tokio::test]
async fn nothing_to_listen_on_is_an_error() {
    let done =
        serve(Vec::new(), plain_routes(), ServeOptions::default(), std::future::ready(Duration::ZERO)).await;
    assert!(matches!(done, Err(ServeError::NoListener)));
    let local = Listener::Tcp(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let public = Listener::Tcp(TcpListener::bind("0.0.0.0:0").await.unwrap());
    assert!(local.is_local().unwrap() && !public.is_local().unwrap());
}

#[tokio::test]
async fn a_stop_lets_work_finish_and_ends_what_is_endless() {
    let closing = CancellationToken::new();
    let settings = GatewaySettings { closing: Closing::of(&closing), ..GatewaySettings::default() };
    let world = World::with(settings, ServeLimits::default(), control_settings()).await;
    let sandbox = world.sandbox().await;
    let mut endless =
        world.open(world.request("GET", "/v1/events").header("x-api-key", &world.key), "").await;
    let path = format!("/v1/sandboxes/{sandbox}/exec");
    let work = world.call("POST", &path, r#"{"command": "sleep 3; echo done"}"#);
    let stop = async {
        // Asked of the use cases, not over the listener that is to close.
        let (caller, id) = (world.control.developer(), sandbox.parse().unwrap());
        eventually("the work has begun", || async {
            world.control.sandbox(&caller, id).await.unwrap().execs_running > 0
        })
        .await;
        closing.cancel();
    };
    let (finished, ()) = tokio::join!(work, stop);
    assert_eq!(finished.json()["stdout"], "done\n");
    let over = async { while endless.body_mut().frame().await.is_some() {} };
    tokio::time::timeout(PATIENCE, over).await.unwrap();
    eventually("nobody listens", || async { TcpStream::connect(world.address).await.is_err() }).await;
}
