//! Crafted queries and headers, for keys with values from them.

use std::cell::Cell;
use std::collections::HashMap;

use axum::Router;
use axum::extract::{Query, RawQuery};
use axum::routing::post;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use redlock_axum::{HeldLock, KeyPart, LockKey, LockManager, LockPolicy};
use tokio::runtime::Runtime;

use crate::requests::{answer, ask, config, encoded};
use crate::support::layer;
use crate::support::{self, memory};

/// Compares the key with the parameters that axum has decoded.
async fn by_query(
    RawQuery(raw): RawQuery,
    Query(all): Query<Vec<(String, String)>>,
    lock: HeldLock,
) -> String {
    let repeated = all.iter().filter(|(name, _)| name == "a").count() > 1;
    let all: HashMap<_, _> = all.into_iter().collect();
    if repeated || !all.contains_key("a") {
        return format!("WRONG query {raw:?}");
    }
    let b = all.get("b").map_or("", String::as_str);
    answer(&lock, &format!("q:{}/{}", encoded(&all["a"]), encoded(&b)))
}

async fn by_header(headers: HeaderMap, lock: HeldLock) -> String {
    let texts: Vec<_> = headers.get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
    let [text] = texts[..] else { return format!("WRONG headers {headers:?}") };
    let text = std::str::from_utf8(text).unwrap();
    answer(&lock, &format!("h:{}", encoded(&text.trim_matches([' ', '\t']))))
}

fn app(locks: &LockManager) -> Router {
    let from_fn = LockPolicy::from_fn(|parts| {
        let texts: Vec<_> = parts.headers.get_all("x-a").iter().collect();
        let text = match texts[..] {
            [text] => std::str::from_utf8(text.as_bytes()).unwrap_or_default(),
            _ => "",
        };
        LockKey::new(format!("h:{}", KeyPart(text.trim_matches([' ', '\t']))))
    });
    Router::new()
        .route("/query", post(by_query).layer(layer(locks, "q:{query(a)}/{query(b)}")))
        .route("/header", post(by_header).layer(layer(locks, "h:{header(X-A)}")))
        .route("/from_fn", post(by_header).layer(layer(locks, from_fn)))
}

fn query() -> impl Strategy<Value = String> {
    const PIECES: [&str; 34] = [
        "a", "b", "a=", "b=", "&", "&", "=", "a=1", "b=2", "&a=x", "&b=y", "%61=", "%62", "%26",
        "%3D", "%3d", "+", "%20", "%2B", "%", "%4", "%25", "%00", "%FF", "%C3", "%C3%89", ";", ":",
        "%3A", "/", "A=", "a[]", "?", "%7Bid%7D",
    ];
    let tail = prop::collection::vec(select(&PIECES[..]), 0..6).prop_map(|all| all.concat());
    (select(&["a=1&b=2", "b=1&a=", "a=x&b=", "%61=+&b=", ""][..]), tail)
        .prop_map(|(head, tail)| format!("/query?{head}{tail}"))
}

/// Different values, different keys. No query reaches a handler with the key of another query.
#[test]
fn a_key_has_exactly_the_query_parameters_that_the_handler_sees() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = app(&locks);
    let served = Cell::new(0_u32);
    let config = config(3000);
    let cases = config.cases;
    let result = TestRunner::new(config).run(&query(), |path| {
        let Some((status, answer)) = runtime.block_on(ask(&app, &path)) else { return Ok(()) };
        if status == StatusCode::OK {
            prop_assert!(answer.starts_with("q:"), "{}: {}", path, answer);
            served.set(served.get() + 1);
        } else {
            prop_assert_eq!(status, StatusCode::BAD_REQUEST, "{}: {}", path, answer);
        }
        // Every query that axum reads without a doubt is served.
        let uri: Uri = path.parse().unwrap();
        let Query(all) = Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap();
        let values = |name: &str| all.iter().filter(|pair| pair.0 == name).collect::<Vec<_>>();
        let is_clear = ["a", "b"].iter().all(|name| {
            matches!(values(name)[..], [(_, value)] if !value.is_empty() && !value.contains('\u{fffd}'))
        });
        prop_assert_eq!(status == StatusCode::OK, is_clear, "{}", path);
        Ok(())
    });
    result.unwrap();
    assert!(served.get() > cases / 10, "only {served:?} requests were served");
    assert!(node.is_empty());
}

/// No header reaches a handler with the key of another header. A function that escapes its value makes the
/// same key as a template.
#[test]
fn a_key_has_exactly_the_header_that_the_handler_sees() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = app(&locks);
    let served = Cell::new(0_u32);
    let byte = prop_oneof![4 => b' '..=b'~', 1 => Just(b'\t'), 2 => 0x80_u8..];
    let bytes = prop::collection::vec(byte, 0..5);
    let text = prop_oneof![2 => bytes, 3 => "[ -~é日:%]{0,6}".prop_map(String::into_bytes)];
    let values = prop_oneof![6 => prop::collection::vec(text.clone(), 1), 1 => prop::collection::vec(text, 0..3)];
    let config = config(2000);
    let cases = config.cases;
    let result = TestRunner::new(config).run(&values, |values| {
        let ask = |path: &str| {
            let mut request = Request::post(path).body(axum::body::Body::empty()).unwrap();
            for value in &values {
                request.headers_mut().append("x-a", HeaderValue::from_bytes(value).unwrap());
            }
            let answer = runtime.block_on(support::answer(&app, request));
            (answer.status, answer.body)
        };
        let (status, answer) = ask("/header");
        let text = match &values[..] {
            [value] => std::str::from_utf8(value).ok().map(|text| text.trim_matches([' ', '\t'])),
            _ => None,
        };
        if text.is_some_and(|text| !text.is_empty()) {
            prop_assert_eq!(status, StatusCode::OK, "{:?}: {}", values, answer);
            prop_assert!(answer.starts_with("h:"), "{:?}: {}", values, answer);
            served.set(served.get() + 1);
        } else {
            prop_assert_eq!(status, StatusCode::BAD_REQUEST, "{:?}: {}", values, answer);
        }
        let (status_of_fn, answer_of_fn) = ask("/from_fn");
        prop_assert_eq!(status, status_of_fn);
        prop_assert!(status != StatusCode::OK || answer == answer_of_fn, "{}", answer_of_fn);
        Ok(())
    });
    result.unwrap();
    assert!(served.get() > cases / 4, "only {served:?} requests were served");
    assert!(node.is_empty());
}
