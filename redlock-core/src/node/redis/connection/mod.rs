//! The way to a server: its address, TLS and credentials.

pub(crate) mod authentication;
pub(crate) mod endpoint;
#[cfg(test)]
mod socket_tests;
#[cfg(feature = "tls")]
pub(crate) mod tls;
