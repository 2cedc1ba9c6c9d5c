//! In the edition 2021, the temporaries of a function's last expression end after the variables of its block, but before
//! its parameters. The attribute makes variables of the parameters.
#![deny(warnings)]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::future::Future;
use std::sync::{Arc, Mutex};

use axum::Extension;
use redlock_axum::{redis_lock, LockError, LockManager};

#[redis_lock(key("order:{}", id.lock().unwrap()))]
async fn handler(Extension(id): Extension<Arc<Mutex<u64>>>) -> String {
    id.lock().unwrap().to_string()
}

#[redis_lock(key = format!("order:{}", id.lock().unwrap()), manager = locks)]
async fn function(locks: &LockManager, id: Mutex<u64>) -> Result<String, LockError> {
    Ok(id.lock().unwrap().to_string())
}

struct Shop(LockManager);

impl Shop {
    #[redis_lock(key("order:{}", id.lock().unwrap()), manager = self.0)]
    fn future(&self, id: Mutex<u64>) -> impl Future<Output = Result<String, LockError>> + '_ {
        std::future::ready(Ok(id.lock().unwrap().to_string()))
    }

    #[redis_lock(keys("sku:{}", ids.lock().unwrap().iter()), manager = self.0)]
    async fn method(self, ids: Mutex<Vec<u64>>) -> Result<usize, LockError> {
        Ok(ids.lock().unwrap().len())
    }
}

#[tokio::test]
async fn parameters_live_longer_than_the_temporaries_of_the_last_expression() {
    let _: axum::routing::MethodRouter<LockManager> = axum::routing::get(handler);
    let shop = Shop(LockManager::in_memory());
    assert_eq!(function(&shop.0, Mutex::new(7)).await.unwrap(), "7");
    assert_eq!(shop.future(Mutex::new(8)).await.unwrap(), "8");
    assert_eq!(shop.method(Mutex::new(vec![1, 2])).await.unwrap(), 2);
}
