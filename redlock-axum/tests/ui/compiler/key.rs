#![allow(non_snake_case)]

use axum::extract::Path;
use redlock_axum::redis_lock;

macro_rules! the {
    ($id:ident) => {
        Path($id)
    };
}

#[redis_lock(key = "order:{ID}")]
async fn no_constant(the!(ID): Path<u64>) -> String {
    ID.to_string()
}

#[redis_lock(key("order:{}:{}", id))]
async fn too_few_values(Path(id): Path<u64>) -> String {
    id.to_string()
}

#[redis_lock(key = "order:{id")]
async fn never_closed(Path(id): Path<u64>) -> String {
    id.to_string()
}

fn main() {}
