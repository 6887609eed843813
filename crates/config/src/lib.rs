//! Typed configuration: defaults, file, environment, flags.
