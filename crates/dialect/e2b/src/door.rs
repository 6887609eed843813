//! The way to the data plane: which sandbox and port a request is for, and whether it may come in.
//!
//! A token is a keyed hash of the sandbox's id, so it is looked at before anything is looked up: without the right one
//! a sandbox that lives, one that ended and one that never was all give the same answer.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use sandstorm_control::server::Caller;
pub(crate) use sandstorm_e2b_wire::ACCESS_TOKEN;
use sandstorm_e2b_wire::{ENVD_PORT, INTERPRETER_PORT};
use sandstorm_types::{ErrorKind, Phase, SandboxId, Timestamp};
use serde_json::json;
use subtle::ConstantTimeEq;
use tower::ServiceExt;

use crate::address::{Address, PORT_HEADER, SANDBOX_HEADER, one};
use crate::query::Query;
use crate::refusal::Refusal;
use crate::sandboxes::labels::{AUTO_RESUME, PRIVATE};
use crate::signature::{Operation, Signed};
use crate::state::Dialect;
use crate::{envd, files, interpreter, leftovers};

/// What tokens are for: envd, and everything else behind a port.
pub(crate) const ENVD: &str = "e2b envd";
pub(crate) const TRAFFIC: &str = "e2b traffic";

const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";

/// Whose request it is, and for which sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) caller: Caller,
    pub(crate) sandbox: SandboxId,
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
    let Planes { dialect, envd, interpreter } = planes;
    let (parts, body) = request.into_parts();
    let address = match dialect.address(&parts) {
        Ok(address) => address,
        Err(refused) => return refused.into_response(),
    };
    // An id of another form is one that never was.
    let id = SandboxId::from_bare(&address.sandbox).ok();
    let admitted = match address.port {
        ENVD_PORT => dialect.admit_to_envd(id, &parts),
        _ => dialect.admit_to_port(id, &parts, address.port),
    };
    let guest = match admitted {
        Ok(guest) => guest,
        Err(closed) => return closed.answer(&address),
    };
    if let Err(closed) = dialect.awake(&guest).await {
        return closed.answer(&address);
    }
    let request = Request::from_parts(parts, body);
    match address.port {
        ENVD_PORT => serve(envd, guest, request).await,
        INTERPRETER_PORT => serve(interpreter, guest, request).await,
        port => dialect.pass_on(guest, port, request).await,
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
    fn admit_to_envd(&self, id: Option<SandboxId>, parts: &Parts) -> Result<Guest, Closed> {
        let query = Query::of(&parts.uri);
        let presented = one(&parts.headers, ACCESS_TOKEN);
        let signed = match (presented, parts.uri.path()) {
            (None, files::PATH) => {
                let signed = Signed::of(&query, operation(parts));
                Some(signed.ok_or_else(|| Closed::unauthorized("missing signature query parameter"))?)
            }
            _ => None,
        };
        let Some(signed) = signed else {
            let denied = || Closed::unauthorized("unauthorized access, please provide a valid access token");
            let (Some(id), Some(token)) = (id, presented) else { return Err(denied()) };
            return self.opened(id, ENVD, token).map_err(|closed| closed.unwrap_or_else(denied));
        };
        let invalid = || Closed::unauthorized("invalid signature");
        let id = id.ok_or_else(invalid)?;
        let token = self.control.sandbox_token(id, ENVD);
        if !signed.matches(&token) {
            return Err(invalid());
        }
        in_time(&signed)?;
        self.opened(id, ENVD, &token).map_err(|closed| closed.unwrap_or_else(invalid))
    }

    /// Behind other ports anybody may come in, unless the sandbox was made private. The code interpreter can run
    /// anything, so it always takes a token.
    fn admit_to_port(&self, id: Option<SandboxId>, parts: &Parts, port: u16) -> Result<Guest, Closed> {
        let denied = || {
            let message = format!("traffic access token is missing or invalid: send it as {TRAFFIC_TOKEN}");
            Closed::Refused(Refusal::new(StatusCode::FORBIDDEN, message))
        };
        let traffic = one(&parts.headers, TRAFFIC_TOKEN);
        let access = one(&parts.headers, ACCESS_TOKEN).filter(|_| port == INTERPRETER_PORT);
        for (purpose, token) in [(TRAFFIC, traffic), (ENVD, access)] {
            if let (Some(id), Some(token)) = (id, token) {
                match self.opened(id, purpose, token) {
                    Err(None) => {}
                    known => return known.map_err(|closed| closed.unwrap_or_else(denied)),
                }
            }
        }
        if port == INTERPRETER_PORT {
            return Err(denied());
        }
        // Whoever knows the id of a public sandbox is let in by the token that we have ourselves.
        let id = id.ok_or(Closed::NoSandbox)?;
        let guest = self.opened(id, TRAFFIC, &self.control.sandbox_token(id, TRAFFIC));
        guest.map_err(|_| Closed::NoSandbox)
    }

    /// Who comes with this token; `None` when it is the wrong one.
    fn opened(&self, sandbox: SandboxId, purpose: &str, token: &str) -> Result<Guest, Option<Closed>> {
        let caller = match self.control.authenticate_sandbox(sandbox, purpose, token) {
            Ok(caller) => caller,
            Err(error) if error.kind() == ErrorKind::Unauthenticated => return Err(None),
            Err(_) => return Err(Some(Closed::NoSandbox)),
        };
        self.control.count_request(&caller).map_err(|error| Some(Closed::Refused(error.into())))?;
        Ok(Guest { caller, sandbox })
    }

    /// For an address of a file that names no sandbox: the one whose token made the signature, or was presented.
    pub(crate) async fn admit_to_files(&self, parts: &Parts) -> Result<Guest, Response> {
        let query = Query::of(&parts.uri);
        let found = match one(&parts.headers, ACCESS_TOKEN) {
            Some(presented) => {
                let same = |token: &str| bool::from(token.as_bytes().ct_eq(presented.as_bytes()));
                let found = self.control.sandbox_by_token(ENVD, same);
                found.ok_or_else(|| Closed::unauthorized("invalid access token"))
            }
            None => self.signed_for(&query, parts),
        };
        let nowhere = Address { sandbox: String::new(), port: ENVD_PORT };
        let entered = async {
            let (sandbox, caller) = found?;
            self.control.count_request(&caller).map_err(|error| Closed::Refused(error.into()))?;
            let guest = Guest { caller, sandbox };
            self.awake(&guest).await?;
            Ok(guest)
        };
        entered.await.map_err(|closed: Closed| closed.answer(&nowhere))
    }

    fn signed_for(&self, query: &Query, parts: &Parts) -> Result<(SandboxId, Caller), Closed> {
        let signed = Signed::of(query, operation(parts));
        let signed = signed.ok_or_else(|| Closed::unauthorized("missing signature query parameter"))?;
        let found = self.control.sandbox_by_token(ENVD, |token| signed.matches(token));
        let found = found.ok_or_else(|| Closed::unauthorized("invalid signature"))?;
        in_time(&signed)?;
        Ok(found)
    }

    /// Whether the sandbox can be called; one that may wake by itself is woken.
    async fn awake(&self, guest: &Guest) -> Result<(), Closed> {
        let view = self.control.sandbox(&guest.caller, guest.sandbox).await.map_err(|_| Closed::NoSandbox)?;
        match view.phase {
            Phase::Ready | Phase::Running => Ok(()),
            Phase::Paused if view.spec.labels.get(AUTO_RESUME) == Some("true") => {
                let woken = self.control.resume_sandbox(&guest.caller, guest.sandbox).await;
                woken.map(drop).map_err(|error| Closed::Refused(error.into()))
            }
            Phase::Creating | Phase::Resuming => Err(Closed::Changing),
            _ => Err(Closed::NoSandbox),
        }
    }

    /// To whatever listens on a port of the sandbox.
    async fn pass_on(&self, guest: Guest, port: u16, mut request: Request<Body>) -> Response {
        let Guest { caller, sandbox } = guest;
        if let Err(closed) = self.check_private(&caller, sandbox, request.headers()).await {
            return closed.into_response();
        }
        for ours in [SANDBOX_HEADER, PORT_HEADER, TRAFFIC_TOKEN] {
            request.headers_mut().remove(ours);
        }
        match (self.forward)(caller, sandbox, port, request).await {
            Some(response) => response,
            None => {
                let message = "The sandbox is running but port is not open";
                let body =
                    json!({"sandboxId": sandbox.bare(), "message": message, "port": port, "code": 502});
                (StatusCode::BAD_GATEWAY, Json(body)).into_response()
            }
        }
    }

    async fn check_private(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let view = self.control.sandbox(caller, sandbox).await?;
        let good = one(headers, TRAFFIC_TOKEN)
            .is_some_and(|token| self.control.authenticate_sandbox(sandbox, TRAFFIC, token).is_ok());
        match view.spec.labels.get(PRIVATE) == Some("true") && !good {
            true => {
                let message =
                    format!("traffic access token is missing or invalid: send it as {TRAFFIC_TOKEN}");
                Err(Refusal::new(StatusCode::FORBIDDEN, message))
            }
            false => Ok(()),
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
