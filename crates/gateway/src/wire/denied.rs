//! What a program wanted to reach on the network and did not.

use sandstorm_types::{Denied, DeniedProtocol, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// Attempts of one kind that did not get through. Of very many, a last entry with the reason `more` counts the rest.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Denied)]
pub(crate) struct DeniedBody {
    /// A name or an address; `null` where the program sent neither.
    host: Option<String>,
    /// `null` for a lookup.
    port: Option<u16>,
    protocol: ProtocolName,
    /// A word for programs, such as `not_allowed`, `forbidden_address`, `other_server_name` or `unresolved`.
    reason: String,
    /// The same for people.
    message: String,
    /// How often.
    count: u64,
    /// When for the first time.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// What was tried: a connection, or the lookup of a name.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DeniedProtocol)]
enum ProtocolName {
    Tcp,
    Dns,
}

impl From<Denied> for DeniedBody {
    fn from(denied: Denied) -> Self {
        Self {
            host: denied.host,
            port: denied.port,
            protocol: match denied.protocol {
                DeniedProtocol::Tcp => ProtocolName::Tcp,
                DeniedProtocol::Dns => ProtocolName::Dns,
            },
            reason: denied.reason,
            message: denied.message,
            count: denied.count,
            at: denied.at,
        }
    }
}
