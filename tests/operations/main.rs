//! Properties that operators rely on: configuration, few permissions, no leaked secrets, encrypted connections.

mod configuration;
mod credentials;
mod fair_rights;
mod groups;
mod least_privilege;
mod secrets;
mod tls;
