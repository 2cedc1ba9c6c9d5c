//! Refused requests in the documents of `utoipa`.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

use crate::rejection::LockRejection;

/// Documents 409 and 503: name it in `responses(..)` of `#[utoipa::path]`.
impl IntoResponses for LockRejection {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let read = |(status, response): (u16, _)| {
            let response: Response = serde_json::from_value(response).ok()?;
            Some((status.to_string(), RefOr::T(response)))
        };
        super::responses().into_iter().filter_map(read).collect()
    }
}
