//! The way out of a sandbox: host-side proxy and resolver that let only listed destinations through.
