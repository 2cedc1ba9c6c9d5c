//! Policies whose keys have values from the headers, the query and the extensions of a request.

use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::{HeaderValue, Method};
use redlock_axum::{HeldLock, LockPolicies, LockPolicy, LocksLayer, SetupError};
use redlock_logs::Logs;

use super::policies;
use crate::support::{Answer, answer, memory, request};

#[derive(Clone)]
struct Claims {
    tenant: String,
}

/// Sends `POST /orders/7?part=1` with the header `x-user: ann` and the claims of the tenant `a:b`, to a
/// handler that responds with its key.
async fn ask(table: LockPolicies) -> Answer {
    let (locks, _node) = memory().await;
    let key = async |lock: HeldLock| lock.keys()[0].to_string();
    let app = Router::new()
        .route("/orders/{id}", on_post(key))
        .layer(table)
        .layer(Extension(Claims { tenant: "a:b".to_owned() }))
        .layer(LocksLayer::new(&locks));
    let mut request = request(Method::POST, "/orders/7?part=1");
    request.headers_mut().insert("x-user", HeaderValue::from_static("ann"));
    answer(&app, request).await
}

fn with_tenant(table: LockPolicies) -> LockPolicies {
    table.ext("tenant", |claims: &Claims| claims.tenant.clone())
}

#[tokio::test]
async fn a_policy_takes_values_from_each_source() {
    let key = "{id:u64}:{header(X-User)}:{query(part):u64}:{ext(tenant)}";
    let table = with_tenant(policies([LockPolicy::new("/orders/{id}", key)]));
    assert!(table.check_routes(["/orders/{id}"]).is_ok());
    assert_eq!(ask(table.checked().unwrap()).await.body, "7:ann:1:a%3Ab");
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_policy_in_a_configuration_takes_values_from_each_source() {
    #[derive(serde::Deserialize)]
    struct Config {
        locks: LockPolicies,
    }

    let config: Config = toml::from_str(
        r#"
        [[locks]]
        route = "/orders/{id}"
        key = "{id:u64}:{header(x-user)}:{query(part):u64}:{ext(tenant):lower}"
        "#,
    )
    .unwrap();
    assert_eq!(ask(with_tenant(config.locks)).await.body, "7:ann:1:a%3Ab");

    let toml = |key: &str| format!("[[locks]]\nroute = '/orders'\nkey = \"{key}\"");
    for (key, part) in [
        ("'order:' + #id", "is an expression of Spring, and would be one key for all requests"),
        ("order:#id", "write `{id}` for `#id`, as in `order:{id}`"),
        ("{cookie(id)}", "{cookie(id)} has no known source of values"),
        ("{header(x user)}", "the argument of {header(x user)} cannot be used"),
    ] {
        let error = toml::from_str::<Config>(&toml(key)).err().unwrap().to_string();
        assert!(error.contains("lock policy 1 (/orders): "), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_extension_without_a_function_is_a_mistake_of_the_table() {
    let table = || {
        policies([
            LockPolicy::new("/users", "k"),
            LockPolicy::new("/orders/{id}", "order:{ext(tenant)}"),
        ])
    };
    let mistake = table().checked().unwrap_err();
    assert_eq!((mistake.position(), mistake.route()), (2, "/orders/{id}"));
    assert!(matches!(
        mistake.reason(),
        SetupError::UnregisteredExtension { name, .. } if name == "tenant"
    ));
    assert!(with_tenant(table()).checked().is_ok());

    let logs = Logs::collect();
    let answer = ask(table()).await;
    assert_eq!(answer.status, 500);
    assert!(!answer.body.contains("tenant"), "{}", answer.body);
    assert_eq!(logs.count("ERROR", "no function is registered for it; add `.ext(\"tenant\","), 1);
}

#[test]
fn a_path_parameter_that_the_route_lacks_is_still_a_mistake() {
    let policy = LockPolicy::new("/orders/{id}", "{header(x-user)}:{sku}");
    let mistake = LockPolicies::new([policy]).unwrap_err().to_string();
    assert!(mistake.contains("the placeholder {sku}, but the route has {id}"), "{mistake}");
}
