use axum::extract::Json;
use redlock_axum::redis_lock;

#[redis_lock(key = "cart", keys = _skus)]
async fn key_and_keys(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys("sku:{}", _skus), keys = _skus)]
async fn twice(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(expire = 5)]
async fn neither(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys = "sku:{}")]
async fn text(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys(_skus))]
async fn no_text(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys("sku:{_skus}"))]
async fn no_iterator(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys("sku:{skus}", skus = _skus))]
async fn named_iterator(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys("sku", _skus))]
async fn no_placeholder(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys("sku:{}:{}", _skus))]
async fn two_placeholders(Json(_skus): Json<Vec<String>>) {}

#[redis_lock(keys("sku:{}:{}", _skus, _sizes))]
async fn two_iterators(Json((_skus, _sizes)): Json<(Vec<String>, Vec<u32>)>) {}

fn main() {}
