//! The catalogue of languages, one data file each, and the kernels of their contexts.
