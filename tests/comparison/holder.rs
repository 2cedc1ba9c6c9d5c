//! A process that locks the key `trial` by one library, as its documentation shows.
//!
//! | work | prints |
//! |---|---|
//! | `hold` | `held`, then `lost` if the library tells it. Works until it is killed |
//! | `drop` | `dropped` after it has dropped what the library returns, and lives on |
//! | `cancel` | `cancelled` after it has dropped the future of an acquisition that waits for its server, and lives on |

use std::future::{Future, pending};
use std::time::Duration;

use redlock_core::LockManager;

pub const KEY: &str = "trial";

/// After this time an acquisition is dropped. The server answers later.
const LEAVES: Duration = Duration::from_millis(300);

pub async fn run(library: &str, url: &str, work: &str, lease: Duration) {
    match library {
        "this library" => ours(url, work, lease).await,
        "rslock" => theirs(url, work, lease).await,
        "`SET NX`" => by_hand(url, work, lease).await,
        #[cfg(feature = "sqlx")]
        "`PgAdvisoryLock`" => crate::advisory::run(url, work).await,
        _ => panic!("no such library"),
    }
    pending::<()>().await;
}

pub async fn cancel<T>(acquisition: impl Future<Output = T>) {
    assert!(tokio::time::timeout(LEAVES, acquisition).await.is_err(), "the server has answered");
    println!("cancelled");
}

async fn ours(url: &str, work: &str, lease: Duration) {
    let locks = LockManager::connect([url]).await.unwrap();
    let request = locks.lock(KEY).expire(lease).renew(true);
    match work {
        "cancel" => cancel(request.acquire()).await,
        "drop" => {
            drop(request.acquire().await.unwrap());
            println!("dropped");
        }
        _ => {
            let guard = request.acquire().await.unwrap();
            println!("held");
            guard.lost().await;
            println!("lost");
        }
    }
    pending::<()>().await;
}

/// `using` renews, and ends the work when a renewal fails.
async fn theirs(url: &str, work: &str, lease: Duration) {
    let locks = rslock::LockManager::new(vec![url]);
    match work {
        "cancel" => cancel(locks.acquire(KEY, lease)).await,
        "drop" => {
            drop(locks.acquire(KEY, lease).await.unwrap());
            println!("dropped");
        }
        _ => {
            let work = async || {
                println!("held");
                pending::<()>().await;
            };
            locks.using(KEY.as_bytes(), lease, work).await.unwrap_err();
            println!("lost");
        }
    }
}

async fn by_hand(url: &str, work: &str, lease: Duration) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut set = redis::cmd("SET");
    set.arg(KEY).arg("token").arg("NX").arg("PX").arg(u64::try_from(lease.as_millis()).unwrap());
    let acquisition = set.query_async::<()>(&mut connection);
    if work == "cancel" {
        return cancel(acquisition).await;
    }
    acquisition.await.unwrap();
    println!("{}", if work == "drop" { "dropped" } else { "held" });
    pending::<()>().await;
}
