//! The key of a request, made from the parameters of the route that it matched.

use std::borrow::Cow;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, NestedPath, RawPathParams};
use http::request::Parts;
use redlock_core::{KeyError, KeyTemplate, LockKey};

use crate::rejection::LockRejection;

/// Fills the template from the request's path parameters, percent-decoded as axum's `Path` sees
/// them.
pub(crate) async fn render(
    template: &KeyTemplate,
    parts: &mut Parts,
) -> Result<LockKey, LockRejection> {
    if template.placeholders().next().is_none() {
        return Ok(template.render(|_| None, Vec::new)?);
    }
    let params = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => params,
        Err(RawPathParamsRejection::InvalidUtf8InPathParam(error)) => {
            return Err(LockRejection::not_utf8(&error));
        }
        Err(_) => return Err(unknown_placeholder(template)),
    };
    for name in template.placeholders() {
        if params.iter().filter(|(known, _)| *known == name).count() > 1 {
            return Err(LockRejection::ambiguous_placeholder(name));
        }
    }
    let key = template.render(
        |name| params.iter().find(|(known, _)| *known == name).map(|(_, v)| Cow::Borrowed(v)),
        || params.iter().map(|(name, _)| name.to_owned()).collect(),
    )?;
    Ok(key)
}

/// Whether the request went through a router that has no route for it, so that there is nothing to
/// lock but the answer that there is nothing.
///
/// axum sets `MatchedPath` for every route but those of `nest_service`, which are known by their
/// `NestedPath`. A service that stands in no router has no path parameters at all.
pub(crate) async fn is_unmatched(parts: &mut Parts) -> bool {
    if parts.extensions.get::<MatchedPath>().is_some()
        || parts.extensions.get::<NestedPath>().is_some()
    {
        return false;
    }
    !matches!(
        RawPathParams::from_request_parts(parts, &()).await,
        Err(RawPathParamsRejection::MissingPathParams(_))
    )
}

fn unknown_placeholder(template: &KeyTemplate) -> LockRejection {
    let name = template.placeholders().next().unwrap_or_default().to_owned();
    KeyError::UnknownPlaceholder { name, available: Vec::new() }.into()
}
