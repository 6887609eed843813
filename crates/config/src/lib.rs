//! Typed configuration: defaults, file, environment, flags.
//!
//! [`Config::load`] lays the layers over each other and gives a typed tree, the origin of every value and the
//! warnings worth printing. Whatever is wrong is reported with its file, line and column, variable or flag. The
//! JSON schema, the reference pages and the file that `config init` writes are made from the same tree.

mod decode;
mod environment;
mod error;
mod form;
mod init;
mod layer;
mod load;
mod lookup;
mod origin;
mod reference;
mod schema;
mod secret;
mod shape;
mod show;
mod tree;
mod validate;
mod variables;
mod yaml;

pub use environment::Environment;
pub use error::{ConfigError, Problem, ProblemKind, Warning};
pub use init::init_text;
pub use load::{Flag, LoadInput, Loaded};
pub use lookup::{SYSTEM_FILE, default_file, default_state_dir};
pub use origin::{Origin, Place, Provenance};
pub use reference::{configuration_page, environment_page};
pub use schema::schema_json;
pub use secret::{Secret, SecretError, SecretRef};
pub use show::Setting;
pub use tree::{
    Admission, Budget, BudgetEnd, BudgetPeriod, Cache, Ceiling, Config, Costs, Database, Dialects, DiskSpace,
    Durability, E2bDialect, Ids, Index, IndexError, Language, Log, LogFormat, LogLevel, Manager, McpDialect,
    McpToolset, Mount, Network, NetworkDefault, PackageIndex, Packages, Pool, Price, PriceModel,
    ProviderKind, ProviderSettings, Quotas, Retention, RoutingObjective, RoutingSettings, RoutingWeights,
    RunCache, Sandboxes, Serve, SessionDialect, Snapshots, SystemCalls, Telemetry, Template, Tls,
};
pub use variables::{Effect, Variable, variables};
