//! The responses of refused requests in documents of `OpenAPI`.

#[cfg(feature = "aide")]
mod aide;
#[cfg(feature = "utoipa")]
mod utoipa;

use serde_json::{Value, json};

/// The statuses that a client must expect of each locked handler, with their descriptions.
const RESPONSES: [(u16, &str); 2] = [
    (409, "Another request is being processed for this resource. Try again after `Retry-After`."),
    (
        503,
        "No lock could be acquired, or the lock was lost. Try again after `Retry-After`, if the work may be repeated.",
    ),
];

/// Returns the response objects of `OpenAPI` 3 with their statuses. Both crates read them from JSON, so that their documents
/// say the same.
fn responses() -> [(u16, Value); 2] {
    RESPONSES.map(|(status, description)| {
        let seconds = json!({ "type": "integer", "minimum": 1 });
        let schema = json!({
            "type": "object",
            "description": "RFC 9457",
            "required": ["type", "title", "status", "code", "detail", "retry_after"],
            "properties": {
                "type": { "type": "string" },
                "title": { "type": "string" },
                "status": { "type": "integer" },
                "code": { "type": "string", "description": "stable, unlike `detail`" },
                "detail": { "type": "string" },
                "retry_after": seconds,
            },
        });
        let response = json!({
            "description": description,
            "headers": { "Retry-After": { "description": "in seconds", "schema": seconds, "style": "simple" } },
            "content": { "application/problem+json": { "schema": schema } },
        });
        (status, response)
    })
}
