//! The Provider trait, its errors, layers, registry, reference backend and conformance suite.
//!
//! A provider is anything that can hold sandboxes: a local engine, a vendor's cloud, a cluster. All of
//! them answer the same [`Provider`] trait; what one cannot do is declared in its `Capabilities`, and
//! [`layers::CapabilityCheck`] refuses it before the provider is asked. [`memory::MemoryProvider`] is
//! the reference: it needs nothing and passes the suite in `conformance`.

#[cfg(feature = "conformance")]
pub mod altered;
mod closing;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod error;
mod events;
mod exec;
mod exec_log;
mod ext;
mod files;
pub mod layers;
pub mod memory;
mod provider;
mod registry;
mod sandbox;
mod streams;
mod tasks;
mod under_way;

pub use closing::Closing;
pub use context::{OpContext, TraceId};
pub use error::{Error, Result};
pub use events::Events;
pub use exec::{
    AttachFrom, CHANNEL_MESSAGE, ChannelInput, Command, Delivery, EndCause, Exec, ExecEnd, ExecEvent,
    ExecInput, ExecRequest, ExecSignal, ExecStatus, InputFrame, Messages, NoMore, OUTPUT_HARD_FACTOR, Offset,
    Portable, PortableProgram, Receipt, Stdin, TtySize,
};
pub use exec_log::{ExecLog, Journal, Keep, ListenerGuard, Restored, Tails};
pub use ext::{Collected, ProviderExt};
pub use files::{
    FileChange, FileEvent, FileInfo, FileKind, FileOp, FileReply, MOST_METADATA, Metadata, ReadRange,
    WatchOptions, WriteOptions, name_fits,
};
pub use provider::{Provider, ProviderInfo};
pub use registry::{DuplicateProvider, Registry};
pub use sandbox::{
    CreateOptions, Expected, ForkOptions, Forked, HostMount, ListFilter, Metered, NotCarried, Placement,
    ProviderEvent, Refusals, Sandbox, Snapshot, SnapshotKind, SnapshotOptions, Usage,
};
pub use streams::{ByteStream, Duplex};
pub use tasks::{Tasks, then_start};
pub use under_way::{Begun, UnderWay};
