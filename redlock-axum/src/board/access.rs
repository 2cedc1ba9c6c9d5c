//! The checks of a request: clients on this machine, pages of other sites. The headers of each answer.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::extract::{ConnectInfo, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use tower_http::csrf::{CsrfLayer, ProtectionError};

use super::Refused;

/// Allows the script and the style of the page by their hashes, and nothing else. The script may not make HTML of texts
/// (`trusted-types`). A test computes the hashes.
const POLICY: &str = "default-src 'none'; \
    script-src 'sha256-/Z0aFxoqxlLp+A7YNFnNX3HQh+XUKtni0H5/dUKOT+Y='; \
    style-src 'sha256-VEEJG8nDOYe8mhQQzBaNUR8uRj+DCclvmKV8JMKjUeU='; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The headers of each answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

/// The headers by which proxies say that they have passed on a request.
const OF_PROXIES: [&str; 3] = ["forwarded", "via", "x-real-ip"];

pub(super) async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
    response.headers_mut().extend(headers);
    response
}

/// Refuses data to pages of other sites, also if the application allows them to read its answers (CORS).
pub(super) async fn refuse_other_sites(request: Request, next: Next) -> Response {
    let site = request.headers().get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    if matches!(site, None | Some(b"same-origin" | b"none")) {
        return next.run(request).await;
    }
    other_site().into_response()
}

/// Refuses a break that a page of another origin has sent.
pub(super) fn same_origin()
-> CsrfLayer<impl FnMut(ProtectionError) -> Response + Clone + Send + Sync + 'static> {
    CsrfLayer::new().with_rejection_response(|_| other_site().into_response())
}

/// Refuses a break that no browser has sent. Programs have the command `redlock`.
pub(super) fn check_origin(parts: &Parts) -> Result<(), Refused> {
    let is_there = |name| parts.headers.contains_key(name);
    let is_from_page = is_there(SEC_FETCH_SITE) || is_there(header::ORIGIN);
    if is_from_page { Ok(()) } else { Err(other_site()) }
}

fn other_site() -> Refused {
    let reason = "the request is not from this page; a proxy has to pass on Host and Origin";
    Refused::new(StatusCode::FORBIDDEN, reason)
}

/// Lets requests from this machine pass.
pub(super) async fn local_only(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match check_local(&parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(reason) => Refused::new(StatusCode::FORBIDDEN, reason).into_response(),
    }
}

fn check_local(parts: &Parts) -> Result<(), &'static str> {
    let Some(ConnectInfo(client)) = parts.extensions.get::<ConnectInfo<SocketAddr>>() else {
        return Err(
            "the service does not know its clients: serve it with `into_make_service_with_connect_info::<SocketAddr>()`",
        );
    };
    if !client.ip().to_canonical().is_loopback() {
        return Err("the client is not on this machine");
    }
    // nginx speaks HTTP/1.0 with services by default, and no browser does.
    if has_passed_proxy(&parts.headers) || parts.version < Version::HTTP_11 {
        return Err("a proxy has passed on the request");
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter().peekable();
    let is_named = hosts.peek().is_some() || parts.uri.authority().is_some();
    let is_loopback = parts.uri.authority().is_none_or(|host| is_loopback(host.as_str()))
        && hosts.all(|host| host.to_str().is_ok_and(is_loopback));
    if is_named && is_loopback {
        Ok(())
    } else {
        Err("the host of the address must be `localhost` or a loopback address")
    }
}

fn has_passed_proxy(headers: &HeaderMap) -> bool {
    let mut names = headers.keys().map(HeaderName::as_str);
    names.any(|name| OF_PROXIES.contains(&name) || name.starts_with("x-forwarded-"))
}

/// Returns whether a host, with or without its port, is this machine under any resolver of names.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = Authority::from_str(host) else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_address = IpAddr::from_str(address).is_ok_and(|ip| ip.to_canonical().is_loopback());
    is_address || name.eq_ignore_ascii_case("localhost")
}
