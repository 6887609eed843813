//! Local isolators behind the Provider trait.
