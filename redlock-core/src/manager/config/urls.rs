//! The URLs in a configuration.

use crate::manager::memory_url::{MEMORY_URL, ONLY_ALONE};
#[cfg(feature = "redis")]
use crate::node::redis::RedisUrl;

/// The mistake in the URL of a server.
#[cfg(not(feature = "redis"))]
pub(in crate::manager) const NO_REDIS: &str =
    "URLs of servers need the feature `redis` of redlock-core (or redlock-axum)";

/// Splits a text at the commas between URLs. A comma that no URL follows belongs to a URL.
pub(super) fn split(text: &str) -> Vec<&str> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let mut urls = Vec::new();
    let mut start = 0;
    for (comma, _) in text.match_indices(',') {
        if separates(&text[comma + 1..]) {
            urls.push(text[start..comma].trim());
            start = comma + 1;
        }
    }
    urls.push(text[start..].trim());
    urls
}

/// Returns whether a comma before `rest` separates two URLs, of which either may be empty.
fn separates(rest: &str) -> bool {
    let rest = rest.trim_start();
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(',');
    if ends(rest) {
        return true;
    }
    if let Some(rest) = rest.strip_prefix(MEMORY_URL) {
        return ends(rest.trim_start());
    }
    // `redis://`, `redis+sentinel://`, and also `unix:/path`.
    rest.split_once(":/").is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|next| next.is_ascii_alphanumeric() || "+-.".contains(next))
}

/// Checks one of `count` URLs. The error explains the mistake without repeating the URL.
pub(super) fn check(url: &str, count: usize) -> Result<(), String> {
    match url {
        "" => Err("it is empty; a comma stands between two URLs only".to_owned()),
        MEMORY_URL if count == 1 => Ok(()),
        MEMORY_URL => Err(ONLY_ALONE.to_owned()),
        _ => server_name(url).map(drop),
    }
}

/// Returns the name of the node with this URL, for `Debug`.
pub(super) fn name(url: &str) -> String {
    match url {
        MEMORY_URL => MEMORY_URL.to_owned(),
        _ => server_name(url).unwrap_or_else(|_| "(invalid)".to_owned()),
    }
}

#[cfg(feature = "redis")]
fn server_name(url: &str) -> Result<String, String> {
    RedisUrl::parse(url).map(|url| url.name())
}

#[cfg(not(feature = "redis"))]
fn server_name(_: &str) -> Result<String, String> {
    Err(NO_REDIS.to_owned())
}
