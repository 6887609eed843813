//! Thin safe wrappers over the Linux calls that the jail and the agent need; the one home of unsafe code.
