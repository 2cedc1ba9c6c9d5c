//! Makes the key of a request from the parameters of the matched route and other parts of the request.

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::routing::any;
use http::request::Parts;
use http::{Request, StatusCode};
use redlock_core::{KeyTemplate, LockKey};
use tower_service::Service;

use super::request_values;
use crate::config::{ExtensionValues, KeySource, LayerConfig};
use crate::rejection::LockRejection;
use crate::value_source::ValueSource;

/// Returns the key of a request.
pub(crate) fn of_request(
    key: &KeySource,
    config: &LayerConfig,
    parts: &mut Parts,
) -> Result<LockKey, LockRejection> {
    match key {
        KeySource::Template(template) => render(template, &config.extension_values, parts),
        KeySource::Function(key) => Ok(key(parts)?),
    }
}

/// Renders the template with the request's path parameters, percent-decoded as in axum's `Path`, and the
/// values of its other sources.
fn render(
    template: &KeyTemplate,
    extension_values: &ExtensionValues,
    parts: &mut Parts,
) -> Result<LockKey, LockRejection> {
    let has_path_names = template.placeholders().any(ValueSource::is_path);
    let params = if has_path_names { path_params(parts)? } else { None };
    let params = || params.iter().flatten();
    let mut values = Vec::new();
    for name in template.placeholders() {
        match request_values::value(name, parts, extension_values)? {
            Some(value) => values.push((name, value)),
            None if params().filter(|(known, _)| *known == name).count() > 1 => {
                return Err(LockRejection::misconfigured(format!(
                    "the placeholder {{{name}}} of the lock key could be one of several path parameters of this \
                     route; give them different names"
                )));
            }
            None => {}
        }
    }
    // The first pair with a name counts, and a route could have a parameter with the name of a header.
    let values = values.iter().map(|(name, value)| (*name, &**value));
    Ok(template.render(values.chain(params()))?)
}

/// Returns the path parameters, or `None` if there are none: rendering then fails with an error that names the
/// first placeholder for one.
fn path_params(parts: &mut Parts) -> Result<Option<RawPathParams>, LockRejection> {
    match now(RawPathParams::from_request_parts(parts, &())) {
        Some(Ok(params)) => Ok(Some(params)),
        Some(Err(RawPathParamsRejection::InvalidUtf8InPathParam(error))) => {
            Err(LockRejection::unusable_value(
                "a path parameter is not valid UTF-8",
                format!("a path parameter cannot be used: {error}"),
            ))
        }
        Some(Err(_)) | None => Ok(None),
    }
}

/// Returns the output of a future that does not wait: the extractors of the path are futures only because their trait
/// demands it. A key that is made at once leaves nothing of its making in the future of the request.
fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Returns whether the request went through a router that has no route for it, so that the router's
/// fallback serves it.
///
/// axum sets `MatchedPath` for every route except those of `nest_service`. Outside of a router, a request
/// has no path parameters at all.
pub(crate) fn is_unmatched(parts: &mut Parts) -> bool {
    if parts.extensions.get::<MatchedPath>().is_some() {
        return false;
    }
    let in_router = !matches!(
        now(RawPathParams::from_request_parts(parts, &())),
        Some(Err(RawPathParamsRejection::MissingPathParams(_)))
    );
    in_router && !is_in_nest_service(parts)
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
fn is_in_nest_service(parts: &Parts) -> bool {
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
    let response = now(PROBE.clone().call(request));
    response.is_none_or(|Ok(response)| response.status() != FALLBACK)
}
