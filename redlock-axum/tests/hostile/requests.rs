//! Generates hostile requests, and checks the responses of the handlers.

use std::fmt::Display;

use axum::Router;
use http::{Method, StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use redlock_axum::HeldLock;
use tower::ServiceExt;

use crate::seeds::seeds;
use crate::support::{request, text};

/// Returns a configuration with this number of cases, made from a listed seed. `PROPTEST_CASES` overrides the number.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let from_env = std::env::var_os("PROPTEST_CASES").map(|_| ProptestConfig::default().cases);
    let cases = from_env.unwrap_or(cases);
    let seed = seeds("hostile").next().unwrap();
    println!("REDLOCK_SEED={seed} repeats these values");
    let rng_seed = RngSeed::Fixed(seed);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

/// Encodes a value as the documentation of `KeyPart` says: an independent implementation to compare
/// the library with.
pub(crate) fn encoded(value: &impl Display) -> String {
    const ENCODED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(&value.to_string(), ENCODED).to_string()
}

/// Returns the response of a handler that expects to hold `key`: the key, or an error if it holds
/// another key or no lock.
pub(crate) fn answer(lock: &HeldLock, key: &str) -> String {
    let held = lock.keys()[0].as_str();
    let is_expected = if key.len() > 200 { held.len() <= 200 } else { held == key };
    if !lock.is_valid() {
        format!("UNLOCKED {key}")
    } else if is_expected {
        held.to_owned()
    } else {
        format!("WRONG {held} instead of {key}")
    }
}

/// Sends a POST. Returns `None` if the path is not a valid URI.
pub(crate) async fn ask(app: &Router, path: &str) -> Option<(StatusCode, String)> {
    path.parse::<Uri>().ok()?;
    let response = app.clone().oneshot(request(Method::POST, path)).await.unwrap();
    Some((response.status(), text(response).await))
}

/// Segments of a path that an implementation could mistake for something else.
pub(crate) const PIECES: [&str; 44] = [
    "a",
    "A",
    "b",
    "42",
    "042",
    "%34%32",
    "%2B42",
    "+42",
    "+",
    "-7",
    "-0",
    "-007",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "67e55044-10b1-426f-9247-bb680e5fe0c8",
    "67E5504410B1426F9247BB680E5FE0C8",
    "%7B67e55044-10b1-426f-9247-bb680e5fe0c8%7D",
    "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
    ":",
    "%3A",
    "%3a",
    "%2F",
    "%2f",
    "%252F",
    "%25",
    "%2525",
    "%00",
    "%0A",
    "%20",
    "%FF",
    "%C3",
    "%C3%89",
    "e%CC%81",
    "%F0%9F%A6%80",
    "%E2%84%AA",
    "%23",
    "%7Bid%7D",
    "{id}",
    "..",
    ".",
    "%2e%2e",
    ";x=1",
];

pub(crate) fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => select(&PIECES[..]).prop_map(str::to_owned),
        1 => prop::collection::vec(select(&PIECES[..]), 1..4).prop_map(|all| all.concat()),
    ]
}
