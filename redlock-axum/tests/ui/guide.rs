// Further messages on the page "Compiler errors" of the guide.

use std::sync::Arc;

use axum::extract::{FromRef, Json};
use redlock_axum::{LockManager, redis_lock};

// A reference to a parameter, which is a reference itself.
#[redis_lock(keys("seat:{}", &seats))]
async fn reference_to_a_list(Json(seats): Json<Vec<String>>) {}

// A state in an `Arc`.

struct App {
    locks: LockManager,
}

impl FromRef<Arc<App>> for LockManager {
    fn from_ref(app: &Arc<App>) -> Self {
        app.locks.clone()
    }
}

fn main() {}
