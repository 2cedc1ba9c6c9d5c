//! What an operator relies on: few permissions, no secret that leaks, encrypted connections.

mod least_privilege;
mod secrets;
mod tls;
