//! Makes the faults of nodes.

mod denials;
mod foreign_keys;
mod restarts;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Fault;
use crate::redis_server::RedisServer;

use denials::deny;
use foreign_keys::ForeignKeys;
use restarts::restart;

/// How long a stuttering node is stopped at a time, and how long it runs in between.
const STUTTER: Duration = Duration::from_millis(10);
/// The pause between two repetitions inside a fault.
const AGAIN: Duration = Duration::from_millis(2);

/// Makes a fault on a server for the time `lasts`, and then undoes it. `choice` selects a variant of the fault. Adds keys
/// of single clients that may exist again to `came_back`, because the server has lost their release. Returns violations by
/// the clients.
pub(super) async fn strike_server(
    server: &mut RedisServer,
    fault: Fault,
    lasts: Duration,
    choice: u64,
    came_back: &mut Vec<String>,
) -> Vec<String> {
    let end = Instant::now() + lasts;
    match fault {
        Fault::Restart
        | Fault::RestartAtOnce
        | Fault::RestartWithData
        | Fault::PowerCut
        | Fault::PowerCutAtOnce
        | Fault::Loading => {
            came_back.extend(restart(server, fault, lasts, choice).await);
            ForeignKeys::remove_returned(server).await;
        }
        Fault::ForeignKey => {
            let keys = ForeignKeys::put(server, choice).await;
            sleep(lasts).await;
            return keys.remove(server).await;
        }
        Fault::Forget => {
            let mut probe = server.probe().await;
            probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
            probe.command::<()>(["FLUSHALL", "SYNC"]).await;
            sleep(lasts).await;
            probe.command::<()>(["CONFIG", "SET", "maxmemory", "0"]).await;
        }
        Fault::Evict => evict(server).await,
        Fault::Freeze => {
            server.freeze();
            sleep(lasts).await;
            server.thaw();
        }
        Fault::Stutter => {
            while Instant::now() < end {
                server.freeze();
                sleep(STUTTER).await;
                server.thaw();
                sleep(STUTTER).await;
            }
        }
        Fault::Pause => {
            let millis = lasts.as_millis().to_string();
            server.probe().await.command::<()>(["CLIENT", "PAUSE", &millis, "ALL"]).await;
            sleep(lasts).await;
            // The server may end the pause late. UNPAUSE is delayed by the pause too, so its reply comes
            // after the end.
            server.probe().await.command::<()>(["CLIENT", "UNPAUSE"]).await;
        }
        Fault::Disconnect => {
            server.probe().await.disconnect_others().await;
            sleep(lasts).await;
        }
        Fault::FlushScripts => {
            let mut probe = server.probe().await;
            while Instant::now() < end {
                probe.command::<()>(["SCRIPT", "FLUSH"]).await;
                sleep(AGAIN).await;
            }
        }
        _ => deny(server, fault, lasts).await,
    }
    Vec::new()
}

/// Makes the server evict all keys, as a server with full memory does.
async fn evict(server: &RedisServer) {
    let mut probe = server.probe().await;
    probe.command::<()>(["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]).await;
    probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
    while probe.command::<u64>(["DBSIZE"]).await > 0 {
        sleep(AGAIN).await;
    }
    probe.command::<()>(["CONFIG", "SET", "maxmemory", "0"]).await;
    probe.command::<()>(["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
}
