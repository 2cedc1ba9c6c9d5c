//! Connections over TLS.

pub(super) mod certificates;
mod errors;
mod options;
mod rotation;
mod services;
