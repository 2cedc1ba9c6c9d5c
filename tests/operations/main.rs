//! Properties that operators rely on: few permissions, no leaked secrets, encrypted connections.

mod least_privilege;
mod secrets;
mod tls;
