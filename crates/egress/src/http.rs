//! Plain HTTP/1 as a client speaks it, read as strictly as it can be.
//!
//! Whoever answers for an allowed name may answer for others too, and goes by the `Host` of each request. So every
//! request on a connection to a name is read, not only the first, and must name that host. Bytes pass unchanged or not
//! at all: what two servers could read differently is refused.

mod body;
mod head;
mod opening;
mod requests;

pub(crate) use opening::{Opening, classify};
pub(crate) use requests::{FirstStatus, Requests};

use crate::proxy::Refusal;

/// Bytes of a request's line and headers.
const MAX_HEAD: usize = 32 * 1024;

type Checked<T> = Result<T, Refusal>;

/// A character of a method or of a header's name.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
