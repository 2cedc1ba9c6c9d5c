//! Fencing numbers, which are the numbers of transactions.

use std::sync::{Arc, Mutex};

use redlock_core::FencingToken;
use redlock_tests::ZookeeperServer;

use crate::{KEY, LONG, connect, no_lock_is_left, start};

/// Callers that wait take places over, and callers that try find an empty queue.
#[tokio::test]
async fn each_holder_gets_a_greater_number_than_the_previous_one() {
    let Some(server) = start(ZookeeperServer::options()).await else { return };
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for _ in 0..2 {
        let manager = connect(&server.url()).await;
        for waits in [true, true, false, false] {
            let (manager, numbers) = (manager.clone(), Arc::clone(&numbers));
            callers.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let request = || manager.lock(KEY).expire(LONG).fenced(true);
                    let guard = if waits {
                        request().wait_time(LONG).acquire().await.unwrap()
                    } else {
                        let Ok(guard) = request().try_acquire().await else { continue };
                        guard
                    };
                    let number = guard.fencing_token().map(FencingToken::number).unwrap();
                    numbers.lock().unwrap().push(number);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
    no_lock_is_left(&server).await;
    let numbers = numbers.lock().unwrap();
    assert!(numbers.len() >= 40);
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}
