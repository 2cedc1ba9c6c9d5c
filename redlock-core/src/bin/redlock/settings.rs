//! The settings of the manager: from a file, or from the environment.

use std::path::Path;

use redlock_core::{LockManager, LockManagerConfig, NodeUrl};
use serde::Deserialize;
use toml::{Table, Value};

use crate::arguments::Options;
use crate::failure::Failure;

/// The beginning of the environment variables.
const VARIABLES: &str = "LOCKS";
/// The table with the settings, in the file of a service.
const TABLE: &str = "locks";

/// Reads the settings. URLs of the command line replace those of the file or the environment.
pub(crate) fn read(options: &Options) -> Result<LockManagerConfig, Failure> {
    let mut config = match &options.config {
        Some(path) => from_file(path)?,
        None => LockManagerConfig::from_env(VARIABLES).map_err(Failure::new)?,
    };
    if !options.url.is_empty() {
        config.urls = options.url.iter().map(|url| NodeUrl::from(url.as_str())).collect();
    }
    if config.urls.is_empty() {
        return Err(Failure::new(
            "no node is known; give --url URL for each node, --config FILE, or set LOCKS_URLS, such as redis://127.0.0.1:6379",
        ));
    }
    Ok(config)
}

/// Connects to the nodes.
pub(crate) async fn connect(config: &LockManagerConfig) -> Result<LockManager, Failure> {
    config.connect().await.map_err(Failure::new)
}

/// Reads the table `locks` of a file, or the whole file if it has no such table.
fn from_file(path: &Path) -> Result<LockManagerConfig, Failure> {
    let wrong = |reason: &str| Failure::new(format!("--config {}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    // `Display` would print the line of a mistake, which may contain a password (secrets stay in).
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = |start| text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        let line = error.span().map(|span| line(span.start));
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        wrong(&format!("{line}{}", error.message()))
    })?;
    let settings = match table.get(TABLE) {
        Some(locks @ Value::Table(_)) => locks.clone(),
        _ => Value::Table(table),
    };
    LockManagerConfig::deserialize(settings).map_err(|error| wrong(error.message()))
}
