//! A database of the test's own in a real PostgreSQL.
