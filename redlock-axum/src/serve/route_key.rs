//! The key of a request, made from the parameters of the route that it matched.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::routing::any;
use http::request::Parts;
use http::{Request, StatusCode};
use redlock_core::{KeyTemplate, LockKey};
use tower_service::Service;

use crate::rejection::LockRejection;

/// Fills the template from the request's path parameters, percent-decoded as axum's `Path` sees
/// them.
pub(crate) async fn render(
    template: &KeyTemplate,
    parts: &mut Parts,
) -> Result<LockKey, LockRejection> {
    if template.placeholders().next().is_none() {
        return Ok(template.render([])?);
    }
    let params = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => params,
        Err(RawPathParamsRejection::InvalidUtf8InPathParam(error)) => {
            return Err(LockRejection::not_utf8(&error));
        }
        // There are no values here, so that the error names the template's first placeholder.
        Err(_) => return Ok(template.render([])?),
    };
    for name in template.placeholders() {
        if params.iter().filter(|(known, _)| *known == name).count() > 1 {
            return Err(LockRejection::ambiguous_placeholder(name));
        }
    }
    Ok(template.render(&params)?)
}

/// Whether the request went through a router that has no route for it, so that there is nothing to
/// lock but the answer that there is nothing.
///
/// axum sets `MatchedPath` for every route but those of `nest_service`. A service that stands in no
/// router has no path parameters at all.
pub(crate) async fn is_unmatched(parts: &mut Parts) -> bool {
    if parts.extensions.get::<MatchedPath>().is_some() {
        return false;
    }
    let in_router = !matches!(
        RawPathParams::from_request_parts(parts, &()).await,
        Err(RawPathParamsRejection::MissingPathParams(_))
    );
    in_router && !is_in_nest_service(parts).await
}

/// Whether a `nest_service` has taken the request, here or in a router further out.
///
/// For such a request axum keeps what has matched to itself, and gives it away only as the beginning
/// of the `MatchedPath` in a router further in. So one is asked that has the single route `/`: with a
/// fallback's request it says `/`, with any other more. Whatever else it may say counts as matched,
/// because that is locked.
///
/// `NestedPath` does not tell: it is there for fallbacks of nested routers, too, and for a layer
/// around `nest_service` it is not there yet.
///
/// Each asking copies the request's extensions, so requests that have a `MatchedPath` do without.
async fn is_in_nest_service(parts: &Parts) -> bool {
    const FALLBACK: StatusCode = StatusCode::NO_CONTENT;
    static PROBE: LazyLock<Router> = LazyLock::new(|| {
        let answer = async |path: MatchedPath| match path.as_str() {
            "/" => FALLBACK,
            _ => StatusCode::OK,
        };
        Router::new().route("/", any(answer))
    });
    let mut request = Request::new(Body::empty());
    *request.extensions_mut() = parts.extensions.clone();
    let Ok(response) = PROBE.clone().call(request).await;
    response.status() != FALLBACK
}
