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

/// The effects of a strike that the checks must know about.
#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// Keys of single clients that may exist again although they were released, because the node has
    /// lost their release.
    pub(super) came_back: Vec<String>,
    /// Violations by the clients.
    pub(super) violations: Vec<String>,
}

/// Makes a fault on a node for the time `lasts`, and then undoes it. `choice` selects a variant of the fault.
pub(super) async fn strike_node(
    server: &mut RedisServer,
    fault: Fault,
    lasts: Duration,
    choice: u64,
) -> Aftermath {
    let end = Instant::now() + lasts;
    match fault {
        Fault::Restart
        | Fault::RestartAtOnce
        | Fault::RestartWithData
        | Fault::PowerCut
        | Fault::PowerCutAtOnce
        | Fault::Loading => {
            let came_back = restart(server, fault, lasts, choice).await;
            ForeignKeys::remove_returned(server).await;
            return Aftermath { came_back, ..Aftermath::default() };
        }
        Fault::ForeignKey => {
            let keys = ForeignKeys::put(server, choice).await;
            sleep(lasts).await;
            let violations = keys.remove(server).await;
            return Aftermath { violations, ..Aftermath::default() };
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
    Aftermath::default()
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
