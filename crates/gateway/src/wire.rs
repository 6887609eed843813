//! The words of the HTTP API: what requests and answers look like in JSON.
//!
//! Twins of the types inside, so that those can change without breaking clients, and so that each has a schema.

mod context;
mod cost;
mod denied;
mod event;
mod exec;
mod file;
mod fork;
mod install;
mod key;
mod object;
mod original;
mod result;
mod route;
mod run;
mod sandbox;
mod server;
mod shapes;
mod snapshot;
mod stream;
mod walls;

pub(crate) use context::{ContextBody, ContextList, CreateContext, Execute};
pub(crate) use cost::CostsBody;
pub(crate) use event::{ServerEvent, WatchEvent};
pub(crate) use exec::{ExecBody, ExecList, SignalRequest, StartExec, Tty};
pub(crate) use file::{
    Entries, ExistsBody, FileBody, FoundBody, MakeDir, MoveFile, SetMode, WrittenBody, octal,
};
pub(crate) use fork::{ForkList, ForkSandbox};
pub(crate) use install::{Install, InstalledBody};
pub(crate) use key::{
    AuditList, CreateKey, CreateTenant, CreatedKey, KeyBody, KeyList, RotateKey, TenantBody, TenantList,
};
pub(crate) use original::{OriginalResultBody, OriginalSnapshot, OriginalUsage, RestoredBody, RunInSandbox};
pub(crate) use result::ResultBody;
pub(crate) use route::{ExplainRoute, ExplanationBody, ProviderBody, ProviderList};
pub(crate) use run::{RunBody, RunList, StartRun};
pub(crate) use sandbox::{CreateSandbox, Extend, SandboxBody, SandboxList, SetNetwork};
pub use server::LanguageView;
pub(crate) use server::{
    HealthBody, LanguageList, LimitsBody, MeBody, SampleBody, SampleList, UsageBody, VersionBody,
};
pub(crate) use shapes::{ErrorCode, StateName};
pub(crate) use snapshot::{CreateSnapshot, SnapshotBody, SnapshotList};
pub(crate) use stream::StreamEvent;
