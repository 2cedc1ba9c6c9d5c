//! Distributed locks for axum.
