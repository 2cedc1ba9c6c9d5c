//! Makes the key of a request from the parameters of the matched route.

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

/// Renders the template with the request's path parameters, percent-decoded as in axum's `Path`.
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
        // Without path parameters, rendering fails with an error that names the first placeholder.
        Err(_) => return Ok(template.render([])?),
    };
    for name in template.placeholders() {
        if params.iter().filter(|(known, _)| *known == name).count() > 1 {
            return Err(LockRejection::ambiguous_placeholder(name));
        }
    }
    Ok(template.render(&params)?)
}

/// Returns whether the request went through a router that has no route for it, so that the router's
/// fallback serves it.
///
/// axum sets `MatchedPath` for every route except those of `nest_service`. Outside of a router, a request
/// has no path parameters at all.
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

/// Returns whether a `nest_service` has matched the request, in this router or in an outer one.
///
/// axum stores the matched prefix of such a request in a private extension, and shows it only as the
/// beginning of `MatchedPath` in an inner router. The function therefore sends the request's extensions
/// through a probe router with the single route `/`. For a request to a fallback, the probe sees the
/// `MatchedPath` `/`; for a request to a nested service, it sees a longer one. Any other result counts as
/// matched, because matched requests are locked.
///
/// `NestedPath` cannot be used: it is also set for the fallbacks of nested routers, and it is not yet set
/// for a layer around `nest_service`.
///
/// The probe copies the request's extensions, so [`is_unmatched`] does not use it for requests with
/// a `MatchedPath`.
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
