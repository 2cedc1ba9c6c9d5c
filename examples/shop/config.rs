//! The configuration: the lock manager and the policies.

use std::error::Error;

use redlock_axum::{LockManager, LockManagerConfig, LockPolicy};
use serde::Deserialize;

/// Connects to the servers in `LOCKS_URLS`. `LOCKS_EXPIRE`, `LOCKS_PREFIX` and others are optional.
pub(crate) async fn connect() -> Result<LockManager, Box<dyn Error>> {
    let mut config = LockManagerConfig::from_env("LOCKS")?;
    // So that the example starts without Redis. In production, leave these lines out: then a copy
    // whose LOCKS_URLS is missing does not start, instead of selling what another copy sells.
    if config.urls.is_empty() {
        config.urls.push("memory:".into());
    }
    Ok(config.connect().await?)
}

/// The file with the policies. A real service has more fields than this.
#[derive(Deserialize)]
struct File {
    policies: Vec<LockPolicy>,
}

/// Reads the file that `POLICIES` names.
pub(crate) fn read_policies() -> Result<Vec<LockPolicy>, Box<dyn Error>> {
    let path =
        std::env::var("POLICIES").unwrap_or_else(|_| "examples/shop/policies.toml".to_owned());
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    Ok(parse_policies(&text).map_err(|error| format!("{path}: {error}"))?)
}

pub(crate) fn parse_policies(text: &str) -> Result<Vec<LockPolicy>, toml::de::Error> {
    let file: File = toml::from_str(text)?;
    Ok(file.policies)
}
