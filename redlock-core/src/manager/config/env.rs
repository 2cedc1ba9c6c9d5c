//! Reads the settings from environment variables.

use std::ffi::{OsStr, OsString};

use super::suggestion::suggestion;
use super::{LockManagerConfig, urls};
use crate::error::ConfigError;

/// Reads the settings from the variables whose names begin with `{prefix}_`, see
/// [`LockManagerConfig::from_env`].
pub(super) fn from_variables(
    prefix: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<LockManagerConfig, ConfigError> {
    if prefix.is_empty() {
        return Err(ConfigError::EmptyPrefix);
    }
    let mut config = LockManagerConfig::new();
    for (variable, value) in variables {
        // A name that is not Unicode is the name of no field.
        let variable = variable.to_string_lossy().into_owned();
        let name = variable.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
        let Some(name) = name else {
            continue;
        };
        let mut fields = LockManagerConfig::FIELDS.iter();
        let Some(field) = fields.find(|field| field.to_ascii_uppercase() == name) else {
            if is_service_link(name, &value) {
                continue;
            }
            return Err(unknown(prefix, name));
        };
        let Some(text) = value.to_str() else {
            return Err(ConfigError::NotUnicode { variable });
        };
        if text.trim().is_empty() {
            continue;
        }
        if *field == "urls" {
            config.urls = read_urls(&variable, text)?;
        } else {
            config
                .read_text(field, text)
                .map_err(|reason| ConfigError::InvalidValue { variable, reason })?;
        }
    }
    Ok(config)
}

fn read_urls(variable: &str, text: &str) -> Result<Vec<String>, ConfigError> {
    let texts = urls::split(text);
    for (index, url) in texts.iter().enumerate() {
        urls::check(url, texts.len()).map_err(|reason| ConfigError::InvalidUrl {
            variable: variable.to_owned(),
            position: index + 1,
            reason,
        })?;
    }
    Ok(texts.into_iter().map(str::to_owned).collect())
}

fn unknown(prefix: &str, name: &str) -> ConfigError {
    let variable = |field: &str| format!("{prefix}_{}", field.to_ascii_uppercase());
    ConfigError::UnknownVariable {
        variable: format!("{prefix}_{name}"),
        suggestion: suggestion(&name.to_ascii_lowercase()).map(variable),
        known: LockManagerConfig::FIELDS.iter().map(|field| variable(field)).collect(),
    }
}

/// Returns whether Kubernetes sets such a variable in every container, for a service whose name begins with
/// the prefix: `{SERVICE}_SERVICE_HOST`, `{SERVICE}_SERVICE_PORT[_{NAME}]`, `{SERVICE}_PORT=tcp://..` and
/// `{SERVICE}_PORT_{number}_{protocol}[_{part}]`.
///
/// `name` is the name without the prefix, so it lacks the service's name or a part of it.
fn is_service_link(name: &str, value: &OsStr) -> bool {
    let name = format!("_{name}");
    if name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
    {
        return true;
    }
    if name.ends_with("_PORT") {
        let is_address = |value: &str| {
            ["tcp://", "udp://", "sctp://"].map(|scheme| value.starts_with(scheme)).contains(&true)
        };
        if value.to_str().is_some_and(is_address) {
            return true;
        }
    }
    let Some((_, port)) = name.split_once("_PORT_") else {
        return false;
    };
    let mut parts = port.split('_');
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    parts.next().is_some_and(is_number)
        && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
        && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
        && parts.next().is_none()
}
