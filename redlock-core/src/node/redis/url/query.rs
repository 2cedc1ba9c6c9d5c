//! The parameters of a URL.

use bb8_redis::redis::parse_redis_url;

use super::ALLOWED;

/// The names of the parameters of all kinds of URLs.
const NAMES: [&str; 16] = [
    "db",
    "user",
    "pass",
    "password_file",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_insecure",
    "node",
    "sentinel_username",
    "sentinelUsername",
    "sentinel_password",
    "sentinelPassword",
    "sentinel_password_file",
    "sentinelServiceName",
    "sentinelMasterId",
];

/// The parameters of a query that were not yet used.
pub(super) struct QueryPairs(Vec<(String, String)>);

impl QueryPairs {
    pub(super) fn read(query: &str) -> Result<Self, String> {
        let url = parse_redis_url(&format!("redis://localhost?{query}"))
            .ok_or_else(|| format!("its parameters cannot be read; {ALLOWED}"))?;
        let pairs = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned()));
        Ok(Self(pairs.collect()))
    }

    /// Removes and returns the first parameter with one of these names.
    pub(super) fn take(&mut self, names: &[&str]) -> Option<String> {
        let index = self.0.iter().position(|(name, _)| names.contains(&name.as_str()))?;
        Some(self.0.remove(index).1)
    }

    /// Returns an error if parameters are left, without their values. An unknown name may be the rest of a password that
    /// contains a `&`, so that the error does not repeat it either (secrets stay in).
    pub(super) fn check_end(&self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) if NAMES.contains(&name.as_str()) => Err(format!(
                "its parameter {name:?} occurs twice, or does not belong to this kind of URL"
            )),
            Some(_) => Err(format!(
                "one of its parameters is unknown; known are {}; in a value write %26 for &",
                NAMES.join(", ")
            )),
        }
    }
}
