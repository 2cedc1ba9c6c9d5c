//! The way to a server: its address, TLS and credentials.

pub(crate) mod authentication;
pub(crate) mod endpoint;
#[cfg(test)]
mod socket_tests;
