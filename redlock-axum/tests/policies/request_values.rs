//! Policies whose keys have values from the headers, the query and the extensions of a request.

use axum::routing::post as on_post;
use axum::{Extension, Router};
use http::{HeaderValue, Method};
use redlock_axum::{HeldLock, LockLayer, LockManager, LockPolicy};

use crate::support::{Answer, answer, memory, request, table};

#[derive(Clone)]
struct Claims {
    tenant: String,
}

/// Sends `POST /orders/7?part=1` with the header `x-user: ann` and the claims of the tenant `a:b`, to a
/// handler that responds with its key.
async fn ask(policy: LockPolicy) -> Answer {
    let (locks, _node) = memory().await;
    let key = async |lock: HeldLock| lock.keys()[0].to_string();
    let app = Router::new()
        .route("/orders/{id}", on_post(key))
        .layer(table(&locks, [policy]))
        .layer(Extension(Claims { tenant: "a:b".to_owned() }));
    let mut request = request(Method::POST, "/orders/7?part=1");
    request.headers_mut().insert("x-user", HeaderValue::from_static("ann"));
    answer(&app, request).await
}

fn with_tenant(policy: LockPolicy) -> LockPolicy {
    policy.ext("tenant", |claims: &Claims| claims.tenant.clone())
}

#[tokio::test]
async fn a_policy_takes_values_from_each_source() {
    let key = "{id:u64}:{header(X-User)}:{query(part):u64}:{ext(tenant)}";
    let policy = with_tenant(LockPolicy::new(key).route("/orders/{id}"));
    let table = table(&LockManager::in_memory(), [policy.clone()]);
    assert!(table.check_routes(["/orders/{id}"]).is_ok());
    assert_eq!(ask(policy).await.body, "7:ann:1:a%3Ab");
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_policy_in_a_configuration_takes_values_from_each_source() {
    let policy: LockPolicy = toml::from_str(
        r#"
        route = "/orders/{id}"
        key = "{id:u64}:{header(x-user)}:{query(part):u64}:{ext(tenant):lower}"
        "#,
    )
    .unwrap();
    assert_eq!(ask(with_tenant(policy)).await.body, "7:ann:1:a%3Ab");
}

#[test]
fn a_key_that_is_no_template_is_a_mistake_of_the_policy() {
    let locks = LockManager::in_memory();
    for (key, part) in [
        ("order:{id", "the { at byte 6 of the key template is never closed"),
        ("redlock:{id}", "begins with `redlock:`"),
        ("'order:' + #id", "is an expression of Spring, and would be one key for all requests"),
        ("order:#id", "write `{id}` for `#id`, as in `order:{id}`"),
        ("{cookie(id)}", "{cookie(id)} has no known source of values"),
        ("{header(x user)}", "the argument of {header(x user)} cannot be used"),
    ] {
        let error = LockLayer::new(&locks, key).unwrap_err().to_string();
        assert!(error.contains(&format!("lock policy 1 ({key}): ")), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_policy_of_a_table_without_the_function_of_its_extension_is_a_mistake() {
    let (locks, route) = (LockManager::in_memory(), "/orders/{id}");
    let policies = |tenant| [LockPolicy::new("k").route("/users"), tenant];
    let policy = || LockPolicy::new("order:{ext(tenant)}").route(route);
    let mistake = LockLayer::table(&locks, policies(policy())).unwrap_err();
    assert_eq!((mistake.position(), mistake.policy()), (2, route));
    assert!(
        mistake.to_string().contains("no function is registered for it; add `.ext(\"tenant\",")
    );
    assert!(LockLayer::table(&locks, policies(with_tenant(policy()))).is_ok());
}

#[test]
fn a_path_parameter_that_the_route_lacks_is_still_a_mistake() {
    let policy = LockPolicy::new("{header(x-user)}:{sku}").route("/orders/{id}");
    let mistake = LockLayer::new(&LockManager::in_memory(), policy).unwrap_err().to_string();
    assert!(mistake.contains("the placeholder {sku}, but the route has {id}"), "{mistake}");
}
