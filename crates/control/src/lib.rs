//! Use cases: run, contexts, dependency layers; sees providers only as dyn Provider.
