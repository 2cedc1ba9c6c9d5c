//! A value has the same key in all three front ends (one resource, one key).

use axum::Router;
use axum::extract::Path;
use axum::routing::post;
use http::StatusCode;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use redlock_axum::{HeldLock, LockManager, LockPolicy, ScopeLayer, redis_lock};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::requests::{PIECES, answer, ask, config, encoded, segment};
use crate::support::{layer, memory, table};

#[redis_lock(key = "order:{id}")]
async fn number(Path((_, id)): Path<(String, u64)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{id}"))
}

#[redis_lock(key = "order:{id}")]
async fn signed(Path((_, id)): Path<(String, i64)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{id}"))
}

#[redis_lock(key = "order:{id}")]
async fn uuid(Path((_, id)): Path<(String, Uuid)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{id}"))
}

#[redis_lock(key("order:{}", id.to_lowercase()))]
async fn lower(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{}", encoded(&id.to_lowercase())))
}

#[redis_lock(key = "order:{id}")]
async fn plain(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("order:{}", encoded(&id)))
}

#[redis_lock(key = "{{order}}/{front}/{id}")]
async fn both(Path((front, id)): Path<(String, String)>, lock: HeldLock) -> String {
    answer(&lock, &format!("{{order}}/{}/{}", encoded(&front), encoded(&id)))
}

/// Handlers whose parameters are texts: the template has the type.
mod of_text {
    use super::*;

    #[redis_lock(key = "order:{id:u64}")]
    pub(super) async fn number(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
        let _ = id;
        behind(lock).await
    }

    #[redis_lock(key("order:{:i64}", id.as_str()))]
    pub(super) async fn signed(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
        let _ = id;
        behind(lock).await
    }

    #[redis_lock(key("order:{value:uuid}", value = id))]
    pub(super) async fn uuid(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
        let _ = id;
        behind(lock).await
    }

    #[redis_lock(key = "order:{id:lower}")]
    pub(super) async fn lower(Path((_, id)): Path<(String, String)>, lock: HeldLock) -> String {
        let _ = id;
        behind(lock).await
    }

    #[redis_lock(key = "{{order}}/{front:lower}/{id}")]
    pub(super) async fn mixed(Path((front, id)): Path<(String, String)>, lock: HeldLock) -> String {
        let _ = (front, id);
        behind(lock).await
    }
}

/// The handlers whose templates are those of layers.
const OF_TEXT: [Kind; 5] = [
    ("u64", || post(of_text::number), "order:{id:u64}"),
    ("i64", || post(of_text::signed), "order:{id:i64}"),
    ("uuid", || post(of_text::uuid), "order:{id:uuid}"),
    ("lower", || post(of_text::lower), "order:{id:lower}"),
    ("mixed", || post(of_text::mixed), "{{order}}/{front:lower}/{id}"),
];

/// The same template makes the same key, or refuses the same request, wherever it stands.
#[test]
fn a_typed_template_is_the_same_in_the_attribute_and_in_the_layer() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = OF_TEXT.iter().fold(Router::new(), |router, (kind, attribute, template)| {
        let layer = post(behind).route_layer(layer(&locks, *template));
        router
            .route(&format!("/attribute/{kind}/{{front}}/{{id}}"), attribute())
            .route(&format!("/layer/{kind}/{{front}}/{{id}}"), layer)
    });
    let app = app.layer(ScopeLayer::new(&locks)).with_state(locks.clone());
    let same = |front: &str, id: &str| {
        for (kind, ..) in OF_TEXT {
            let ask = |by: &str| runtime.block_on(ask(&app, &format!("/{by}/{kind}/{front}/{id}")));
            let (attribute, layer) = (ask("attribute"), ask("layer"));
            let Some(((status, key), (by_layer, layers_key))) = attribute.zip(layer) else {
                continue;
            };
            // The layer decodes only the values in its key. The attribute decodes all of them.
            let other_value = by_layer.is_success() && !status.is_success() && front.contains('%');
            if !other_value {
                prop_assert_eq!(status, by_layer, "{} {}/{}", kind, front, id);
            }
            if status.is_success() && by_layer.is_success() {
                prop_assert_eq!(key, layers_key, "{} {}/{}", kind, front, id);
            }
        }
        Ok(())
    };
    for id in PIECES {
        same("x", id).unwrap();
        same(id, "X").unwrap();
    }
    let pairs = (segment(), segment());
    TestRunner::new(config(150)).run(&pairs, |(front, id)| same(&front, &id)).unwrap();
    assert!(node.is_empty());
}

/// Responds with its key.
async fn behind(lock: HeldLock) -> String {
    assert!(lock.is_valid());
    lock.keys()[0].to_string()
}

/// A kind of value: its name, the handler with the attribute, and the template for the layer and
/// the policy.
type Kind = (&'static str, fn() -> axum::routing::MethodRouter<LockManager>, &'static str);

const KINDS: [Kind; 6] = [
    ("u64", || post(number), "order:{id:u64}"),
    ("i64", || post(signed), "order:{id:i64}"),
    ("uuid", || post(uuid), "order:{id:uuid}"),
    ("lower", || post(lower), "order:{id:lower}"),
    ("plain", || post(plain), "order:{id}"),
    ("both", || post(both), "{{order}}/{front}/{id}"),
];

/// Returns a router with the routes `/{attribute, layer or policy}/{kind}/{front}/{id}`.
fn fronts(locks: &LockManager) -> Router {
    let mut router = Router::new();
    let mut policies = Vec::new();
    for (kind, attribute, template) in KINDS {
        let route = |front: &str| format!("/{front}/{kind}/{{front}}/{{id}}");
        router = router
            .route(&route("attribute"), attribute())
            .route(&route("layer"), post(behind).route_layer(layer(locks, template)))
            .route(&route("policy"), post(behind));
        policies.push(LockPolicy::new(template).route(route("policy")));
    }
    router.layer(table(locks, policies)).layer(ScopeLayer::new(locks)).with_state(locks.clone())
}

/// Tries each piece and generated pairs of segments, in all spellings.
#[test]
fn the_attribute_the_layer_and_the_policies_make_the_same_key() {
    let runtime = Runtime::new().unwrap();
    let (locks, node) = runtime.block_on(memory());
    let app = fronts(&locks);
    let same = |front: &str, id: &str| {
        for (kind, ..) in KINDS {
            let ask = |by: &str| {
                let path = format!("/{by}/{kind}/{front}/{id}");
                runtime.block_on(ask(&app, &path))
            };
            let (attribute, layer, policy) = (ask("attribute"), ask("layer"), ask("policy"));
            prop_assert_eq!(&layer, &policy, "{} {}/{}", kind, front, id);
            let Some(((status, key), (by_layer, layers_key))) = attribute.zip(layer) else {
                continue;
            };
            let known = [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND];
            prop_assert!(known.contains(&status) && known.contains(&by_layer), "{}", key);
            // The layer accepts two forms of a UUID. The attribute accepts every form that the
            // `uuid` crate parses.
            let other_form = kind == "uuid" && (id.contains("7B") || id.contains("urn"));
            // The layer decodes only the values in its key. The attribute decodes all of them.
            let other_value = by_layer.is_success() && !status.is_success() && front.contains('%');
            if !other_form && !other_value {
                prop_assert_eq!(status, by_layer, "{} {}/{}", kind, front, id);
            }
            if status.is_success() && by_layer.is_success() {
                prop_assert_eq!(key, layers_key, "{} {}/{}", kind, front, id);
            }
        }
        Ok(())
    };
    for id in PIECES {
        same("x", id).unwrap();
    }
    let pairs = (segment(), segment());
    TestRunner::new(config(150)).run(&pairs, |(front, id)| same(&front, &id)).unwrap();
    assert!(node.is_empty());
}
