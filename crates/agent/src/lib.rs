//! PID 1 of a sandbox and the protocol that it speaks with the host.
