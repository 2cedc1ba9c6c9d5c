//! Connections over TLS.

mod certificates;
mod errors;
mod options;
mod rotation;
mod services;
