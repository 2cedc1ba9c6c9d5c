//! The name of a lock, which each front end sets for tables and metrics.

use axum::routing::post as on_post;
use axum::{Json, Router};
use http::Method;
use http::request::Parts;
use redlock_axum::{
    HeldLock, KeyError, LockError, LockKey, LockLayer, LockManager, LockPolicy, redis_lock,
};

use crate::support::{app, memory, send, table, text};

/// A template of more than 100 bytes, whose byte 100 is inside of a character.
const LONG: &str = concat!(
    "12345678901234567890123456789012345678901234567890",
    "1234567890123456789012345678901234567890123456789äöü",
);
const CONSTANT: &str = "constant";

async fn name(lock: HeldLock) -> String {
    lock.name().to_owned()
}

/// Returns the name of the lock that the caller holds at the key `a`.
async fn name_of_caller(locks: &LockManager) -> Result<String, LockError> {
    let joined = locks.lock("a").reentrant(true).try_acquire().await?;
    Ok(joined.name().to_owned())
}

async fn names(app: &Router, paths: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for path in paths {
        names.push(text(send(app, Method::POST, path).await).await);
    }
    names
}

fn orders(parts: &Parts) -> Result<LockKey, KeyError> {
    LockKey::new(format!("order:{}", parts.uri.path().len()))
}

#[tokio::test]
async fn a_handler_has_the_template_of_its_key_or_its_own_name() {
    use axum::extract::Path;

    #[redis_lock(key = "order:{id:u64}")]
    async fn template(Path(id): Path<u64>, lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(key("order:{}", id), detached)]
    async fn values(Path(id): Path<u64>, lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(keys("sku:{}", skus))]
    async fn several(lock: HeldLock, Json(skus): Json<Vec<u64>>) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(key = format!("order:{id}"))]
    async fn expression(Path(id): Path<u64>, lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(keys = [format!("order:{id}")])]
    async fn r#move(Path(id): Path<u64>, lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(key = "order:{id}", name = "orders")]
    async fn named(Path(id): Path<u64>, lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(key = "order:{id}", name = CONSTANT, expire = 5)]
    async fn named_by_constant(Path(id): Path<u64>, lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    #[redis_lock(key = "12345678901234567890123456789012345678901234567890\
               1234567890123456789012345678901234567890123456789äöü")]
    async fn long(lock: HeldLock) -> String {
        lock.name().to_owned()
    }

    let (locks, _node) = memory().await;
    let router = Router::new()
        .route("/template/{id}", on_post(template))
        .route("/values/{id}", on_post(values))
        .route("/several", on_post(several))
        .route("/expression/{id}", on_post(expression))
        .route("/move/{id}", on_post(r#move))
        .route("/named/{id}", on_post(named))
        .route("/constant/{id}", on_post(named_by_constant))
        .route("/long", on_post(long));
    let app = app(router, &locks);
    let paths = ["template", "values", "expression", "move", "named", "constant"];
    let paths = paths.map(|name| format!("/{name}/7"));
    let found = names(&app, &paths.each_ref().map(String::as_str)).await;
    assert_eq!(found, ["order:{id:u64}", "order:{}", "expression", "move", "orders", "constant"]);
    assert_eq!(names(&app, &["/long"]).await, [&LONG[..99]]);
    let several = crate::support::post_json(&app, "/several", "[1, 2]").await;
    assert_eq!(several.body, "sku:{}");
}

#[tokio::test]
async fn a_function_has_the_template_of_its_key_or_its_own_name() {
    struct Shop(LockManager);

    impl Shop {
        const NAME: &str = "shop";

        #[redis_lock(key = "{key}", manager = self.0)]
        async fn template(&self, key: &str) -> Result<String, LockError> {
            name_of_caller(&self.0).await
        }

        #[redis_lock(key = key, manager = self.0, expire = 5)]
        async fn expression(&self, key: &str) -> Result<String, LockError> {
            name_of_caller(&self.0).await
        }

        #[redis_lock(key = "a", manager = locks, name = "settlement", detached)]
        async fn named(locks: LockManager) -> Result<String, LockError> {
            name_of_caller(&locks).await
        }

        #[redis_lock(key = "a", manager = self.0, name = Self::NAME)]
        async fn named_by_constant(&self) -> Result<String, LockError> {
            name_of_caller(&self.0).await
        }
    }

    let shop = Shop(LockManager::in_memory());
    assert_eq!(shop.template("a").await.unwrap(), "{key}");
    assert_eq!(shop.expression("a").await.unwrap(), "expression");
    assert_eq!(Shop::named(shop.0.clone()).await.unwrap(), "settlement");
    assert_eq!(shop.named_by_constant().await.unwrap(), "shop");
}

/// A layer names the locks of the policies that have no name.
#[tokio::test]
async fn a_layer_has_the_template_of_its_policy_or_its_name() {
    let (locks, _node) = memory().await;
    let layer = |policy: LockPolicy| LockLayer::new(&locks, policy).unwrap();
    let of = |layer: LockLayer| on_post(name).route_layer(layer);
    let template = || LockPolicy::new("order:{id}");
    let by_closure = LockPolicy::from_fn(|parts: &Parts| orders(parts));
    let by_pointer = LockPolicy::from_fn(orders as fn(&Parts) -> Result<LockKey, KeyError>);
    let app = Router::new()
        .route("/template/{id}", of(layer(template())))
        .route("/policy/{id}", of(layer(template().named("a policy"))))
        .route("/layer/{id}", of(layer(template()).named("a layer").unwrap()))
        .route("/both/{id}", of(layer(template().named(CONSTANT)).named("a layer").unwrap()))
        .route("/function", of(layer(LockPolicy::from_fn(orders))))
        .route("/closure", of(layer(by_closure)))
        .route("/pointer", of(layer(by_pointer)))
        .route("/long", of(layer(LockPolicy::new(LONG))));
    let paths = ["/template/7", "/policy/7", "/layer/7", "/both/7"];
    let expected = ["order:{id}", "a policy", "a layer", "constant"];
    assert_eq!(names(&app, &paths).await, expected);
    let paths = ["/function", "/closure", "/pointer", "/long"];
    assert_eq!(names(&app, &paths).await, ["orders", "other", "other", &LONG[..99]]);
}

#[tokio::test]
async fn a_table_has_the_template_of_each_policy_or_its_name() {
    let policies = || {
        [
            LockPolicy::new("order:{id}").route("/orders/{id}"),
            LockPolicy::new("stock:{sku}").route("/stock/{sku}").named("stock"),
        ]
    };
    let (locks, _node) = memory().await;
    let app = |layer: LockLayer| {
        let router = Router::new().route("/orders/{id}", on_post(name));
        router.route("/stock/{sku}", on_post(name)).layer(layer)
    };
    let paths = ["/orders/7", "/stock/7"];
    let unnamed = app(table(&locks, policies()));
    assert_eq!(names(&unnamed, &paths).await, ["order:{id}", "stock"]);
    let named = app(table(&locks, policies()).named("shop").unwrap());
    assert_eq!(names(&named, &paths).await, ["shop", "stock"]);
}

#[cfg(feature = "serde")]
#[tokio::test]
async fn a_configuration_names_a_policy() {
    let (locks, _node) = memory().await;
    let policy = |name: &str| -> LockPolicy {
        toml::from_str(&format!("key = \"order:{{id}}\"\n{name}")).unwrap()
    };
    for (line, expected) in [("", "order:{id}"), ("name = \"orders\"", "orders")] {
        let layer = LockLayer::new(&locks, policy(line)).unwrap();
        let app = Router::new().route("/{id}", on_post(name).route_layer(layer));
        assert_eq!(names(&app, &["/7"]).await, [expected]);
    }
    let error = LockLayer::new(&locks, policy("name = \"\"")).unwrap_err().to_string();
    assert!(error.contains("name is \"\", but must be from 1 to 100 bytes"), "{error}");
}

#[test]
fn an_invalid_name_is_found_when_the_layer_is_made() {
    let locks = LockManager::in_memory();
    let allowed = "but must be from 1 to 100 bytes without control characters";
    for (name, value) in [
        (String::new(), "\"\""),
        ("a\tb".to_owned(), "\"a\\tb\""),
        ("ä".repeat(51), "102 bytes long"),
    ] {
        let mistake = format!("name is {value}, {allowed}");
        let policy = LockPolicy::new("order:{id}").named(name.clone());
        let error = LockLayer::new(&locks, policy).unwrap_err();
        assert_eq!(error.to_string(), format!("lock policy 1 (order:{{id}}): {mistake}"));
        let error = LockLayer::new(&locks, "order:{id}").unwrap().named(name).unwrap_err();
        assert_eq!((error.option(), error.to_string()), ("name", mistake));
    }
}
