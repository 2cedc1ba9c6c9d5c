//! A reverse proxy that removes a prefix of the path.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::net::SocketAddr;

/// Returns a proxy that passes requests below the prefix on, with the `Host` of the client.
pub(crate) fn removing(prefix: &'static str, service: SocketAddr) -> Router {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    Router::new().fallback(move |mut request: Request| {
        let client = client.clone();
        async move {
            let path = request.uri().path_and_query().unwrap().as_str();
            let Some(rest) = path.strip_prefix(prefix) else { return not_found() };
            let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
            *request.uri_mut() = format!("http://{service}{rest}").parse::<Uri>().unwrap();
            client.request(request).await.map(IntoResponse::into_response).unwrap()
        }
    })
}

fn not_found() -> Response {
    StatusCode::NOT_FOUND.into_response()
}
