//! Making the faults.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Fault;
use crate::append_only_file::AppendOnlyFile;
use crate::probe::Probe;
use crate::redis_server::RedisServer;

/// Of a node that stutters: as long stopped as running.
const STUTTER: Duration = Duration::from_millis(10);
/// Between two strokes of a fault that is repeated.
const AGAIN: Duration = Duration::from_millis(10);

/// Makes a fault on a node, for so long, and puts everything in order again.
pub(super) async fn strike_node(server: &mut RedisServer, fault: Fault, lasts: Duration) {
    let end = Instant::now() + lasts;
    match fault {
        Fault::Restart | Fault::RestartAtOnce => {
            server.kill();
            AppendOnlyFile::of(server).cut(0);
            // From when it is gone: until then it may have voted.
            sleep(lasts).await;
            server.restart().await;
        }
        Fault::RestartWithData => {
            server.kill();
            sleep(lasts).await;
            server.restart().await;
        }
        Fault::Forget => {
            let mut probe = server.probe().await;
            probe.command::<()>(["CONFIG", "SET", "maxmemory", "1"]).await;
            probe.command::<()>(["FLUSHALL", "SYNC"]).await;
            sleep(lasts).await;
            probe.command::<()>(["CONFIG", "SET", "maxmemory", "0"]).await;
        }
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
            // The server may not look at its clock at once. It delays this too.
            server.probe().await.command::<()>(["CLIENT", "UNPAUSE"]).await;
        }
        Fault::Busy => busy(server, lasts).await,
        Fault::Disconnect => {
            let mut probe = server.probe().await;
            for kind in ["normal", "pubsub"] {
                probe.command::<i64>(["CLIENT", "KILL", "TYPE", kind]).await;
            }
            sleep(lasts).await;
        }
        Fault::FlushScripts => {
            let mut probe = server.probe().await;
            while Instant::now() < end {
                probe.command::<()>(["SCRIPT", "FLUSH"]).await;
                sleep(AGAIN / 5).await;
            }
        }
        Fault::OutOfMemory => {
            toggle(
                server,
                lasts,
                ["CONFIG", "SET", "maxmemory", "1"],
                ["CONFIG", "SET", "maxmemory", "0"],
            )
            .await;
        }
        Fault::Demote => {
            // To a master that is not there, so that it keeps what it has.
            toggle(server, lasts, ["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"])
                .await;
        }
        Fault::Forbid => {
            let (deny, allow) = (["-set", "-evalsha"], ["+set", "+evalsha"]);
            let words =
                |rules: [&'static str; 2]| ["ACL", "SETUSER", "default", rules[0], rules[1]];
            toggle(server, lasts, words(deny), words(allow)).await;
        }
        _ => unreachable!("{fault} does not strike nodes"),
    }
}

/// Gives one command, and after a while the one that undoes it.
async fn toggle<const A: usize, const B: usize>(
    server: &RedisServer,
    lasts: Duration,
    on: [&str; A],
    off: [&str; B],
) {
    let mut probe = server.probe().await;
    probe.command::<()>(on).await;
    sleep(lasts).await;
    probe.command::<()>(off).await;
}

/// The server answers BUSY as soon as the script runs for longer than `lua-time-limit`.
async fn busy(server: &RedisServer, lasts: Duration) {
    let mut runs = server.probe().await;
    let script = runs.try_command::<()>(["EVAL", "while true do end", "0"]);
    let kill = async {
        sleep(lasts).await;
        // Before it is that far it says that there is nothing to kill. Over a new connection each
        // time, because one that the server has put on hold is not served before the script ends.
        let killed = async || -> redis::RedisResult<()> {
            Probe::connect(&server.url()).await?.try_command(["SCRIPT", "KILL"]).await
        };
        while killed().await.is_err() {
            sleep(AGAIN / 5).await;
        }
    };
    let (ended, ()) = tokio::join!(script, kill);
    assert!(ended.is_err(), "an endless script ended");
}
