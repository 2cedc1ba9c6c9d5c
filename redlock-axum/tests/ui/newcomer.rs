// Mistakes that users of the first services made. The text of each message must lead to the remedy.

use axum::extract::{Json, Path, State};
use axum::routing::post;
use axum::{Router, debug_handler};
use redlock_axum::{IdempotencyLayer, LockManager, MemoryAnswers, redis_lock};

// An argument of another library, a misspelt one, and one of the layer.
#[redis_lock(key = "a", ttl = 5)] async fn ttl() {}
#[redis_lock(key = "a", expires = 5)] async fn expires() {}
#[redis_lock(key = "a", methods = "POST")] async fn methods() {}

// A wrong unit.
#[redis_lock(key = "a", expire = 5, time_unit = "ms")] async fn short_unit() {}
#[redis_lock(key = "a", expire = "5 minuets")] async fn misspelt_unit() {}
#[redis_lock(key = "a", expire = 0.5)] async fn part_of_a_second() {}

// A list in one key.
#[redis_lock(key = "seats:{seats}")]
async fn list(Json(seats): Json<Vec<String>>) {}

// A reference to a parameter that is a reference already.
#[redis_lock(keys("seat:{}", &seats))]
async fn reference(Json(seats): Json<Vec<String>>) {}

// `debug_handler` above: it does not see the parameter that the lock adds.
#[debug_handler]
#[redis_lock(key = "a")]
async fn debugged() {}

// A state that has a manager, but no `FromRef`.

#[derive(Clone)]
struct App {
    locks: LockManager,
}

#[redis_lock(key = "order:{id}")]
async fn pay(Path(id): Path<u64>) -> String {
    id.to_string()
}

#[redis_lock(key = "order:{id}")]
async fn refund(State(_app): State<App>, Path(id): Path<u64>) -> String {
    id.to_string()
}

fn without_from_ref(app: App) -> [Router; 2] {
    [
        Router::new().route("/{id}", post(pay)).with_state(app.clone()),
        Router::new().route("/{id}", post(refund)).with_state(app),
    ]
}

// A router without the state that holds the manager.
fn without_state() -> Router {
    Router::new().route("/{id}", post(pay))
}

// A layer that does not know whose keys these are.
fn without_scope(locks: &LockManager) -> Router {
    Router::new().layer(IdempotencyLayer::new(locks, MemoryAnswers::new()))
}

fn main() {}
