//! The routes, by what they are about.

pub(crate) mod efast;
pub(crate) mod execute;
pub(crate) mod execute_code;
pub(crate) mod files;
pub(crate) mod handler;
pub(crate) mod preview;
pub(crate) mod read;
pub(crate) mod sessions;
pub(crate) mod upload;
