//! Keys with values from the headers, the query and the extensions of a request.

use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::any;
use axum::{Extension, Router};
use http::{HeaderValue, Method, Request};
use redlock_axum::{HeldLock, LockLayer, LockManager, LockPolicy, LockService};
use redlock_logs::Logs;
use tower::ServiceExt;

use crate::support::{Answer, OnlyWhenReady, answer, hold, layer, memory, request};

#[derive(Clone)]
struct Claims {
    tenant: String,
    user: u64,
}

/// Returns an application that responds with the key of its lock.
fn app(policy: impl Into<LockPolicy>, locks: &LockManager) -> Router {
    let layer = layer(locks, policy);
    let key = async |lock: HeldLock| lock.keys()[0].to_string();
    Router::new()
        .route("/", any(key).layer(layer.clone()))
        .nest("/in/{id}", Router::new().route("/{part}", any(key).layer(layer)))
}

fn with_headers(headers: &[(&'static str, &[u8])]) -> Request<Body> {
    let mut request = request(Method::POST, "/");
    for (name, value) in headers {
        request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    request
}

/// Sends a request to an application with this key. Asserts that a refused request takes no lock.
async fn ask(template: &str, request: Request<Body>) -> Answer {
    let (locks, node) = memory().await;
    let answer = answer(&app(template, &locks), request).await;
    assert!(node.is_empty());
    answer
}

async fn key_with_headers(template: &str, headers: &[(&'static str, &[u8])]) -> String {
    let answer = ask(template, with_headers(headers)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

async fn key_with_query(template: &str, path: &str) -> String {
    let answer = ask(template, request(Method::POST, path)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// Asserts that the request is answered with 400 and this detail.
async fn is_bad_request(template: &str, request: Request<Body>, detail: &str) {
    let answer = ask(template, request).await;
    let detail = format!("\"detail\":\"{detail}\"");
    assert_eq!(answer.status, 400, "{detail}: {}", answer.body);
    assert!(answer.body.contains(&detail), "{detail}: {}", answer.body);
}

#[tokio::test]
async fn a_header_gives_its_text_escaped() {
    let key = key_with_headers;
    for template in ["user:{header(x-user)}", "user:{header(X-User)}"] {
        assert_eq!(key(template, &[("x-user", b"ann")]).await, "user:ann");
    }
    let template = "user:{header(x-user)}:{header(x-part)}";
    assert_eq!(key(template, &[("x-user", b"a:b"), ("x-part", b"c")]).await, "user:a%3Ab:c");
    assert_eq!(key(template, &[("x-user", b"a"), ("x-part", b"b:c")]).await, "user:a:b%3Ac");
    assert_eq!(
        key(template, &[("x-user", "é".as_bytes()), ("x-part", b"%")]).await,
        "user:%C3%A9:%25"
    );
    let typed = "{header(x-n):u64}/{header(x-code):lower}";
    assert_eq!(key(typed, &[("x-n", b"042"), ("x-code", b"SaLe")]).await, "42/sale");
}

/// HTTP/1 removes the blanks around a value, and HTTP/2 does not. One resource, one key.
#[tokio::test]
async fn blanks_around_a_header_are_no_part_of_the_key() {
    for value in [&b" a b"[..], b"a b\t", b"\t a b "] {
        assert_eq!(key_with_headers("{header(x-user)}", &[("x-user", value)]).await, "a%20b");
    }
    let blank = with_headers(&[("x-user", b" \t")]);
    is_bad_request("{header(x-user)}", blank, "the header x-user is empty").await;
}

#[tokio::test]
async fn a_header_that_gives_no_value_is_a_bad_request() {
    let template = "user:{header(x-user)}";
    for (headers, detail) in [
        (&[][..], "the header x-user is missing"),
        (&[("x-other", &b"a"[..])], "the header x-user is missing"),
        (&[("x-user", b"a"), ("x-user", b"b")], "the header x-user occurs more than once"),
        (&[("x-user", b"a"), ("x-user", b"a")], "the header x-user occurs more than once"),
        (&[("x-user", b"a"), ("X-User", b"")], "the header x-user occurs more than once"),
        (&[("x-user", b"")], "the header x-user is empty"),
        (&[("x-user", b"\xff")], "the header x-user is not valid UTF-8"),
        (&[("x-user", b"a\xc3")], "the header x-user is not valid UTF-8"),
    ] {
        let mut request = request(Method::POST, "/");
        for (name, value) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_bytes(value).unwrap());
        }
        is_bad_request(template, request, detail).await;
    }
    let typed = with_headers(&[("x-user", b"ann")]);
    let detail = "the header x-user is not a whole number from 0 to 18446744073709551615";
    is_bad_request("{header(x-user):u64}", typed, detail).await;
    let reserved = with_headers(&[("x-user", b"redlock")]);
    is_bad_request("{header(x-user)}:k", reserved, "the header x-user has a reserved value").await;
}

#[tokio::test]
async fn a_query_parameter_gives_its_decoded_value_escaped() {
    let template = "tenant:{query(tenant)}";
    for (query, key) in [
        ("tenant=a", "tenant:a"),
        ("x=1&tenant=a&y", "tenant:a"),
        ("&&tenant=a&", "tenant:a"),
        ("%74en%61nt=%61", "tenant:a"),
        ("tenant=a=b", "tenant:a%3Db"),
        ("tenant=a+b", "tenant:a%20b"),
        ("tenant=a%20b", "tenant:a%20b"),
        ("tenant=a%2Bb", "tenant:a%2Bb"),
        ("tenant=a%26tenant=b", "tenant:a%26tenant%3Db"),
        ("tenant=%252F", "tenant:%252F"),
        ("tenant=%", "tenant:%25"),
        ("tenant=%4", "tenant:%254"),
        ("tenant=:%00", "tenant:%3A%00"),
        ("Tenant=b&tenant=a&tenant%20=c&tenants=d", "tenant:a"),
    ] {
        assert_eq!(key_with_query(template, &format!("/?{query}")).await, key, "{query}");
    }
    let typed = "item:{query(item[id]):u64}";
    for query in ["item[id]=042", "item%5Bid%5D=%2B42", "item%5bid%5d=42"] {
        assert_eq!(key_with_query(typed, &format!("/?{query}")).await, "item:42", "{query}");
    }
    assert_eq!(key_with_query("{query(a b)}", "/?a+b=1").await, "1");
    assert_eq!(key_with_query("{query(a:b)}", "/?a:b=1").await, "1");
}

#[tokio::test]
async fn a_query_parameter_that_gives_no_value_is_a_bad_request() {
    let template = "tenant:{query(tenant)}";
    let repeated = "the query parameter tenant occurs more than once";
    for (path, detail) in [
        ("/", "the query parameter tenant is missing"),
        ("/?", "the query parameter tenant is missing"),
        ("/?tenants=a", "the query parameter tenant is missing"),
        ("/?%FFtenant=a", "the query parameter tenant is missing"),
        ("/?tenant", "the query parameter tenant is empty"),
        ("/?tenant=", "the query parameter tenant is empty"),
        ("/?tenant=a&tenant=b", repeated),
        ("/?tenant=a&tenant=a", repeated),
        ("/?tenant=a&%74enant=b", repeated),
        ("/?tenant=a&tenant", repeated),
        ("/?tenant=%FF", "the query parameter tenant is not valid UTF-8"),
        ("/?tenant=a+%C3", "the query parameter tenant is not valid UTF-8"),
    ] {
        is_bad_request(template, request(Method::POST, path), detail).await;
    }
    let detail = "the query parameter n is not a UUID";
    is_bad_request("{query(n):uuid}", request(Method::POST, "/?n=1"), detail).await;
}

#[tokio::test]
async fn sources_can_be_combined_with_path_parameters_in_a_nested_router() {
    let (locks, _node) = memory().await;
    let template = "{id}:{part:u64}:{query(q)}:{header(x-user)}:{ext(tenant)}:{id}";
    let policy = LockPolicy::new(template).ext("tenant", |claims: &Claims| claims.tenant.clone());
    let claims = Claims { tenant: "a:b".to_owned(), user: 7 };
    let app = app(policy, &locks).layer(Extension(claims));
    let request = Request::post("/in/x%2Fy/07?q=1").header("x-user", "ann");
    let answer = answer(&app, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.body, "x%2Fy:7:1:ann:a%3Ab:x%2Fy");
}

/// A client writes the path, and a proxy may check the header.
#[tokio::test]
async fn a_path_parameter_with_the_name_of_a_header_does_not_replace_the_header() {
    let (locks, _node) = memory().await;
    let policy = LockPolicy::new("user:{header(x-user)}:{id}");
    let key = async |lock: HeldLock| lock.keys()[0].to_string();
    let app = Router::new().route("/{header(x-user)}/{id}", any(key).layer(layer(&locks, policy)));
    let request = Request::post("/eve/1").header("x-user", "ann");
    assert_eq!(answer(&app, request.body(Body::empty()).unwrap()).await.body, "user:ann:1");
}

#[tokio::test]
async fn a_key_without_path_parameters_needs_no_router() {
    let (locks, _node) = memory().await;
    let layer = layer(&locks, "user:{header(x-user)}:{query(q)}");
    let service = LockService::new(OnlyWhenReady::default(), layer);
    let call = || {
        let request = Request::post("/?q=1").header("x-user", "ann").body(Body::empty());
        service.clone().oneshot(request.unwrap())
    };
    assert_eq!(call().await.into_response().status(), 200);
    let _guard = hold(&locks, "user:ann:1").await;
    assert_eq!(call().await.into_response().status(), 409);
}

/// No work without the lock: axum serves HEAD with the handler for GET.
#[tokio::test]
async fn head_has_the_key_of_get() {
    let (locks, _node) = memory().await;
    let app = app(LockPolicy::new("t:{query(t)}").methods([Method::GET]), &locks);
    let _guard = hold(&locks, "t:1").await;
    for (path, status) in [("/?t=1", 409), ("/?t=2", 200), ("/", 400)] {
        assert_eq!(answer(&app, request(Method::HEAD, path)).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_registered_function_takes_its_value_from_an_extension() {
    let (locks, _node) = memory().await;
    let policy = LockPolicy::new("{ext(tenant)}:{ext(user):u64}:{ext(last)}")
        .ext("user", |claims: &Claims| claims.user)
        .ext("tenant", |claims: &Claims| claims.tenant.clone())
        .ext("last", |_: &Claims| "first")
        .ext("last", |count: &u8| count + 1);
    let app = app(policy, &locks).layer(Extension(1_u8));
    for (tenant, status, expected) in [
        ("a:b", 200, "a%3Ab:7:2"),
        ("", 400, "\"detail\":\"a value that identifies the resource is empty\""),
    ] {
        let claims = Claims { tenant: tenant.to_owned(), user: 7 };
        let app = app.clone().layer(Extension(claims));
        let answer = answer(&app, request(Method::POST, "/")).await;
        assert_eq!(answer.status, status);
        assert!(answer.body.contains(expected), "{}", answer.body);
        assert!(!answer.body.contains("ext("), "{}", answer.body);
    }
}

/// The name of an extension is a part of the application's code.
#[tokio::test]
async fn an_unusable_value_of_an_extension_does_not_show_its_name_to_clients() {
    let (locks, node) = memory().await;
    for (template, tenant, detail) in [
        ("export:{ext(tenant)}", "", "a value that identifies the resource is empty"),
        ("export:{ext(tenant):u64}", "x", "a value that identifies the resource is not a whole"),
        ("{ext(tenant)}:7", "redlock", "a value that identifies the resource has a reserved value"),
    ] {
        let policy =
            LockPolicy::new(template).ext("tenant", |claims: &Claims| claims.tenant.clone());
        let claims = Claims { tenant: tenant.to_owned(), user: 7 };
        let app = app(policy, &locks).layer(Extension(claims));
        let answer = answer(&app, request(Method::POST, "/")).await;
        assert_eq!(answer.status, 400, "{template}: {}", answer.body);
        assert!(answer.body.contains(detail), "{template}: {}", answer.body);
        assert!(!answer.body.contains("tenant"), "{template}: {}", answer.body);
        assert!(node.is_empty(), "{template}");
    }
}

#[tokio::test]
async fn a_missing_extension_is_a_server_error_and_the_log_names_the_fix() {
    let (locks, node) = memory().await;
    let policy = LockPolicy::new("export:{ext(tenant)}")
        .ext("tenant", |claims: &Claims| claims.tenant.clone());
    let claims = Claims { tenant: "a".to_owned(), user: 7 };
    // Inside of the lock, where the lock layer does not see the extension.
    let app = Router::new().route("/", any(|| async {})).layer(Extension(claims));
    let app = app.layer(layer(&locks, policy));

    let logs = Logs::collect();
    let answer = answer(&app, request(Method::POST, "/")).await;
    assert_eq!(answer.status, 500);
    assert!(!answer.body.contains("tenant") && !answer.body.contains("Claims"), "{}", answer.body);
    assert_eq!(logs.count("ERROR", "the placeholder {ext(tenant)} of the lock key needs"), 1);
    assert_eq!(logs.count("ERROR", "request_values::Claims, which the request lacks"), 1);
    assert_eq!(logs.count("ERROR", "add it to the router after the lock layer"), 1);
    assert!(node.is_empty());
}

#[test]
fn an_extension_without_a_function_is_a_mistake_of_the_policy() {
    let locks = LockManager::in_memory();
    let policy =
        || LockPolicy::new("export:{ext(tenant)}").ext("user", |claims: &Claims| claims.user);
    let mistake = LockLayer::new(&locks, policy()).unwrap_err();
    assert_eq!(
        mistake.to_string(),
        "lock policy 1 (export:{ext(tenant)}): the key has the placeholder {ext(tenant)}, but no function is \
         registered for it; add `.ext(\"tenant\", |extension: &MyExtension| ..)` to the policy"
    );
    assert!(LockLayer::new(&locks, policy().ext("tenant", |_: &Claims| "a")).is_ok());
}
