//! The way to the data plane: which sandbox and port a request is for, and whether it may come in.
//!
//! A token is looked at before its sandbox is looked up: without the right one a sandbox that lives, one that ended and one
//! that never was all give the same answer. What comes in without any token gets to public ports and nowhere else.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use sandstorm_control::server::{Caller, SandboxView, TokenKind, Verb};
pub(crate) use sandstorm_e2b_wire::ACCESS_TOKEN;
use sandstorm_e2b_wire::{ENVD_PORT, INTERPRETER_PORT};
use sandstorm_types::{ErrorKind, GuestPath, Phase, SandboxId, Timestamp, User};
use serde_json::json;
use tower::ServiceExt;

use crate::address::{Address, PORT_HEADER, SANDBOX_HEADER, one};
use crate::query::Query;
use crate::refusal::Refusal;
use crate::sandboxes::labels::{AUTO_RESUME, REQUEST_HOST};
use crate::sandboxes::network;
use crate::signature::{Operation, Signed};
use crate::state::{Dialect, PortRequest};
use crate::{browsers, envd, files, interpreter, leftovers, paths};

/// The token of envd: programs and files.
pub(crate) const ENVD: TokenKind =
    TokenKind { purpose: "e2b envd", verbs: &[Verb::Look, Verb::Wake, Verb::Run, Verb::Files] };
/// The token of everything else behind a port, the code interpreter's too.
pub(crate) const TRAFFIC: TokenKind =
    TokenKind { purpose: "e2b traffic", verbs: &[Verb::Look, Verb::Wake, Verb::Run, Verb::Connect] };

const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";

/// Whose request it is, and for which sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) caller: Caller,
    pub(crate) sandbox: SandboxId,
}

impl Guest {
    /// The same, working on files as the user that a request names.
    pub(crate) fn acting_as(&self, user: Option<User>) -> Self {
        let caller = self.caller.clone().acting_as(user.unwrap_or_default());
        Self { caller, sandbox: self.sandbox }
    }

    /// The place that a client means, from the home of that user on.
    pub(crate) fn resolve(&self, path: &str) -> Result<GuestPath, Refusal> {
        paths::resolve_as(self.caller.user(), path)
    }
}

/// What answers on the ports that are ours.
#[derive(Debug, Clone)]
struct Planes {
    dialect: Dialect,
    envd: Router,
    interpreter: Router,
}

impl Dialect {
    /// The routes for what it claims.
    pub fn data_plane(&self) -> Router {
        let (envd, interpreter) = (envd::router(self), interpreter::router(self));
        Router::new().fallback(enter).layer(from_fn(leftovers::read_on)).with_state(Planes {
            dialect: self.clone(),
            envd,
            interpreter,
        })
    }
}

async fn enter(State(planes): State<Planes>, request: Request) -> Response {
    let dialect = &planes.dialect;
    let (parts, body) = request.into_parts();
    if dialect.is_preflight(&parts) {
        return browsers::welcome(&parts);
    }
    let address = match dialect.address(&parts) {
        Ok(address) => address,
        Err(refused) => return refused.into_response(),
    };
    let ours = browsers::is_ours(address.port);
    let response = planes.lead(address, Request::from_parts(parts, body)).await;
    if ours { browsers::shared(response) } else { response }
}

impl Planes {
    async fn lead(self, address: Address, request: Request) -> Response {
        let Self { dialect, envd, interpreter } = self;
        let (parts, body) = request.into_parts();
        // An id of another form is one that never was.
        let id = SandboxId::from_bare(&address.sandbox).ok();
        let admitted = match address.port {
            ENVD_PORT => dialect.admit_to_envd(id, &parts).await,
            _ => dialect.admit_to_port(id, &parts, address.port).await,
        };
        let guest = match admitted {
            Ok(guest) => guest,
            Err(closed) => return closed.answer(&address),
        };
        let view = match dialect.awake(&guest).await {
            Ok(view) => view,
            Err(closed) => return closed.answer(&address),
        };
        let request = Request::from_parts(parts, body);
        let caller = guest.caller.clone();
        let mut response = match address.port {
            ENVD_PORT => serve(envd, guest, request).await,
            INTERPRETER_PORT => serve(interpreter, guest, request).await,
            _ => dialect.pass_on(guest, &view, &address, request).await,
        };
        // Whoever serves it cuts the answer when the caller may not hear it any more.
        response.extensions_mut().insert(caller);
        response
    }
}

async fn serve(router: Router, guest: Guest, mut request: Request) -> Response {
    request.extensions_mut().insert(guest);
    match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Why somebody does not come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Closed {
    /// No sandbox that could be called.
    NoSandbox,
    /// It changes at this moment.
    Changing,
    Refused(Refusal),
}

impl Closed {
    fn answer(self, address: &Address) -> Response {
        match self {
            Self::NoSandbox => {
                let shown: String = address.sandbox.chars().take(64).collect();
                let body = json!({"sandboxId": shown, "message": "The sandbox was not found", "code": 502});
                (StatusCode::BAD_GATEWAY, Json(body)).into_response()
            }
            Self::Changing => {
                let message = "The sandbox is still transitioning. Try again in a moment.";
                Refusal::new(StatusCode::CONFLICT, message).into_response()
            }
            Self::Refused(refused) => refused.into_response(),
        }
    }

    fn unauthorized(message: &str) -> Self {
        Self::Refused(Refusal::new(StatusCode::UNAUTHORIZED, message))
    }
}

impl Dialect {
    /// envd takes its own token; files also a signature that was made with it.
    async fn admit_to_envd(&self, id: Option<SandboxId>, parts: &Parts) -> Result<Guest, Closed> {
        let query = Query::of(&parts.uri);
        let presented = one(&parts.headers, ACCESS_TOKEN);
        if presented.is_none() && parts.uri.path() == files::PATH {
            // An id of another form is one that never was.
            let id = id.unwrap_or(SandboxId::from_bits(0));
            return self.signed_for(Some(id), &query, parts).await;
        }
        let denied = || Closed::unauthorized("unauthorized access, please provide a valid access token");
        let (Some(id), Some(token)) = (id, presented) else { return Err(denied()) };
        self.opened(id, ENVD, token).await.map_err(|closed| closed.unwrap_or_else(denied))
    }

    /// Ports take the token for traffic; public ones take everybody. The code interpreter can run anything, so it always
    /// takes a token.
    async fn admit_to_port(&self, id: Option<SandboxId>, parts: &Parts, port: u16) -> Result<Guest, Closed> {
        let denied = || {
            let message = format!("traffic access token is missing or invalid: send it as {TRAFFIC_TOKEN}");
            Closed::Refused(Refusal::new(StatusCode::FORBIDDEN, message))
        };
        let traffic = one(&parts.headers, TRAFFIC_TOKEN);
        let access = one(&parts.headers, ACCESS_TOKEN).filter(|_| port == INTERPRETER_PORT);
        for (kind, token) in [(TRAFFIC, traffic), (ENVD, access)] {
            if let (Some(id), Some(token)) = (id, token) {
                match self.opened(id, kind, token).await {
                    Err(None) => {}
                    known => return known.map_err(|closed| closed.unwrap_or_else(denied)),
                }
            }
        }
        if port == INTERPRETER_PORT {
            return Err(denied());
        }
        let sandbox = id.ok_or(Closed::NoSandbox)?;
        match self.control.visitor(sandbox) {
            Ok(caller) => self.counted(Guest { caller, sandbox }),
            Err(error) if error.kind() == ErrorKind::Forbidden => Err(denied()),
            Err(_) => Err(Closed::NoSandbox),
        }
    }

    /// Who comes with this token; `None` when it is the wrong one.
    async fn opened(
        &self,
        sandbox: SandboxId,
        kind: TokenKind,
        token: &str,
    ) -> Result<Guest, Option<Closed>> {
        match self.control.authenticate_sandbox(sandbox, kind, token).await {
            Ok(caller) => self.counted(Guest { caller, sandbox }).map_err(Some),
            Err(error) if error.kind() == ErrorKind::Unauthenticated => Err(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Some(Closed::NoSandbox)),
            Err(error) => Err(Some(Closed::Refused(error.into()))),
        }
    }

    fn counted(&self, guest: Guest) -> Result<Guest, Closed> {
        self.control.count_request(&guest.caller).map_err(|error| Closed::Refused(error.into()))?;
        Ok(guest)
    }

    /// For an address of a file that names no sandbox: the one whose token made the signature, or was presented.
    pub(crate) async fn admit_to_files(&self, parts: &Parts) -> Result<Guest, Response> {
        let query = Query::of(&parts.uri);
        let entered = async {
            let guest = match one(&parts.headers, ACCESS_TOKEN) {
                Some(presented) => {
                    let found = self.control.authenticate_token(ENVD, presented).await;
                    self.found(found, "invalid access token")?
                }
                None => self.signed_for(None, &query, parts).await?,
            };
            self.awake(&guest).await?;
            Ok(guest)
        };
        let nowhere = Address { sandbox: String::new(), port: ENVD_PORT, own_host: false };
        entered.await.map_err(|closed: Closed| closed.answer(&nowhere))
    }

    async fn signed_for(
        &self,
        sandbox: Option<SandboxId>,
        query: &Query,
        parts: &Parts,
    ) -> Result<Guest, Closed> {
        let unsigned = || match query.get("signature").is_some_and(|text| !text.is_empty()) {
            true => Closed::unauthorized("invalid signature"),
            false => Closed::unauthorized("missing signature query parameter"),
        };
        let signed = Signed::of(query, operation(parts)).ok_or_else(unsigned)?;
        // Nothing is looked for that would open nothing.
        in_time(&signed)?;
        let found = self.control.authenticate_signature(sandbox, ENVD, signed.matcher()).await;
        self.found(found, "invalid signature")
    }

    fn found(
        &self,
        found: sandstorm_provider::Result<(SandboxId, Caller)>,
        otherwise: &str,
    ) -> Result<Guest, Closed> {
        match found {
            Ok((sandbox, caller)) => self.counted(Guest { caller, sandbox }),
            Err(error) => Err(match error.kind() {
                ErrorKind::Unauthenticated => Closed::unauthorized(otherwise),
                ErrorKind::NotFound => Closed::NoSandbox,
                _ => Closed::Refused(error.into()),
            }),
        }
    }

    /// Whether the sandbox can be called; one that may wake by itself is woken.
    async fn awake(&self, guest: &Guest) -> Result<SandboxView, Closed> {
        let view = self.control.sandbox(&guest.caller, guest.sandbox).await.map_err(|_| Closed::NoSandbox)?;
        match view.phase {
            Phase::Ready | Phase::Running => Ok(view),
            Phase::Paused if view.spec.labels.get(AUTO_RESUME) == Some("true") => {
                let woken = self.control.resume_sandbox(&guest.caller, guest.sandbox).await;
                woken.map_err(|error| Closed::Refused(error.into()))
            }
            Phase::Creating | Phase::Resuming => Err(Closed::Changing),
            _ => Err(Closed::NoSandbox),
        }
    }

    /// To whatever listens on a port of the sandbox.
    async fn pass_on(
        &self,
        guest: Guest,
        view: &SandboxView,
        address: &Address,
        mut request: Request<Body>,
    ) -> Response {
        let Guest { caller, sandbox } = guest;
        let (port, own_host) = (address.port, address.own_host);
        let mask = view.spec.labels.get(REQUEST_HOST).and_then(|mask| network::masked(mask, port));
        let host = mask.and_then(|host| HeaderValue::from_str(&host).ok());
        for ours in [SANDBOX_HEADER, PORT_HEADER, TRAFFIC_TOKEN] {
            request.headers_mut().remove(ours);
        }
        match (self.forward)(PortRequest { caller, sandbox, port, own_host, host, request }).await {
            Some(response) => response,
            None => {
                let message = "The sandbox is running but port is not open";
                let body =
                    json!({"sandboxId": sandbox.bare(), "message": message, "port": port, "code": 502});
                (StatusCode::BAD_GATEWAY, Json(body)).into_response()
            }
        }
    }
}

fn operation(parts: &Parts) -> Operation {
    if parts.method == http::Method::POST { Operation::Write } else { Operation::Read }
}

fn in_time(signed: &Signed<'_>) -> Result<(), Closed> {
    match signed.is_expired(Timestamp::now().millis().div_euclid(1000)) {
        true => Err(Closed::unauthorized("signature is already expired")),
        false => Ok(()),
    }
}
