//! Sandboxes as pods.
