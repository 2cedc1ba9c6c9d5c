//! The digest of a request.

use std::fmt;

use axum::extract::OriginalUri;
use http::request::Parts;
use sha2::{Digest, Sha256};

/// The SHA-256 of a request: its method, path, query and body. Two requests with one key and different fingerprints are
/// different requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the digest of a request. Each part is preceded by its length, so that no part runs into the next one.
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        // Behind `Router::nest`, the URI lacks the prefix.
        let uri = parts.extensions.get().map_or(&parts.uri, |OriginalUri(uri)| uri);
        let mut digest = Sha256::new();
        let query = uri.query().map(str::as_bytes);
        let parts = [parts.method.as_str().as_bytes(), uri.path().as_bytes()];
        for part in parts.into_iter().chain(query).chain([body]) {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.update([u8::from(query.is_some())]);
        Self(digest.finalize().into())
    }

    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Fingerprint {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Writes 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(method: &str, uri: &str, body: &str) -> Fingerprint {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        Fingerprint::of(&request.into_parts().0, body.as_bytes())
    }

    #[test]
    fn each_part_of_a_request_changes_its_fingerprint() {
        let requests = [
            ("POST", "/a", ""),
            ("PUT", "/a", ""),
            ("POST", "/b", ""),
            ("POST", "/a?", ""),
            ("POST", "/a?b", ""),
            ("POST", "/a", "b"),
            ("POST", "/a?b", "c"),
            ("POST", "/a?bc", ""),
            ("POST", "/ab", ""),
        ];
        let all: std::collections::HashSet<_> =
            requests.iter().map(|(method, uri, body)| of(method, uri, body)).collect();
        assert_eq!(all.len(), requests.len());
        assert_eq!(of("POST", "/a?b", "c"), of("POST", "/a?b", "c"));
    }

    #[test]
    fn a_fingerprint_is_that_of_the_whole_path_behind_a_nested_router() {
        let request = Request::post("/payments").body(()).unwrap();
        let (mut parts, ()) = request.into_parts();
        parts.extensions.insert(OriginalUri("/shop/payments".parse().unwrap()));
        assert_eq!(Fingerprint::of(&parts, b""), of("POST", "/shop/payments", ""));
    }
}
