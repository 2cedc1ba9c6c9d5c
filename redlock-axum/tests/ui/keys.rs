use axum::extract::Path;
use redlock_axum::redis_lock;

#[redis_lock(key = "")]
async fn empty() {}

#[redis_lock(key = "a\n")]
async fn control_character() {}

#[redis_lock(key = "redlock:{id}")]
async fn reserved(Path(_id): Path<u64>) {}

#[redis_lock(key = 42)]
async fn number() {}

#[redis_lock(key = "order:{id:?}")]
async fn specification(Path(_id): Path<u64>) {}

#[redis_lock(key = "order:{}")]
async fn no_name(Path(_id): Path<u64>) {}

#[redis_lock(key = "order:{order.id}")]
async fn field(Path(_order): Path<u64>) {}

#[redis_lock(key = "pair:{a }:{b }")]
async fn blanks(Path((_a, _b)): Path<(u64, u64)>) {}

#[redis_lock(key = "order:{customer}")]
async fn no_parameter(Path((_id, _shop)): Path<(u64, u64)>) {}

#[redis_lock(key = "order:{id}")]
async fn no_names(Path(_): Path<u64>) {}

macro_rules! the {
    ($id:ident) => {
        Path($id)
    };
}

#[redis_lock(key("order:{id}:{}", _shop))]
async fn made_by_a_macro(the!(_id): Path<u64>, Path(_shop): Path<u64>) {}

#[redis_lock(key = concat!("order:", "{_id}"))]
async fn put_together(Path(_id): Path<u64>) {}

#[redis_lock(key(id))]
async fn no_text(Path(_id): Path<u64>) {}

#[redis_lock(key("order:{}", id, sku))]
async fn value_without_placeholder(Path((id, sku)): Path<(u64, String)>) -> String {
    format!("{id} {sku}")
}

fn main() {}
