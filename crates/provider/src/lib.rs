//! The Provider trait, its errors, layers, registry, reference backend and conformance suite.
