//! Vocabulary of Sandstorm: specs, limits, ids, states, events, results, capabilities. No I/O, no async.
