//! The sandstorm command.
