//! Faults of servers that run but refuse commands.

use std::time::Duration;

use tokio::time::sleep;

use super::{AGAIN, Fault};
use crate::probe::Probe;
use crate::redis_server::RedisServer;
use crate::storm::{PASSWORD, USER};

/// Makes a server refuse commands for the time `lasts`.
pub(super) async fn deny(server: &RedisServer, fault: Fault, lasts: Duration) {
    let (begin, end) = match fault {
        Fault::Busy => return busy(server, lasts).await,
        Fault::TooManyClients => return refuse_clients(server, lasts).await,
        Fault::Misconfigured => {
            server.break_snapshots().await;
            sleep(lasts).await;
            return server.give_up_snapshots().await;
        }
        _ => commands(fault),
    };
    let mut probe = server.probe().await;
    send(&mut probe, &begin).await;
    sleep(lasts).await;
    send(&mut probe, &end).await;
}

/// Returns the commands that begin and end a fault.
fn commands(fault: Fault) -> (Vec<String>, Vec<String>) {
    let set = |what: &str| format!("CONFIG SET {what}");
    let user = |what: &str| format!("ACL SETUSER {USER} {what}");
    // The master does not exist, so the replica keeps its data.
    let (replica, master) = ("REPLICAOF 127.0.0.1 1".to_owned(), "REPLICAOF NO ONE".to_owned());
    match fault {
        Fault::OutOfMemory => (vec![set("maxmemory 1")], vec![set("maxmemory 0")]),
        Fault::Demote => (vec![replica], vec![master]),
        Fault::MasterDown => (
            vec![set("replica-serve-stale-data no"), replica],
            vec![master, set("replica-serve-stale-data yes")],
        ),
        Fault::NoReplicas => {
            (vec![set("min-replicas-to-write 1")], vec![set("min-replicas-to-write 0")])
        }
        Fault::Forbid => (vec![user("-set -evalsha")], vec![user("+set +evalsha")]),
        Fault::WrongPassword => (
            vec![user("resetpass >another"), format!("CLIENT KILL USER {USER}")],
            vec![user(&format!("resetpass >{PASSWORD}"))],
        ),
        Fault::DeleteUser => (
            vec![format!("ACL DELUSER {USER}")],
            vec![user(&format!("on >{PASSWORD} ~* &* +@all"))],
        ),
        _ => unreachable!("{fault:?} does not strike nodes"),
    }
}

async fn send(probe: &mut Probe, commands: &[String]) {
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        probe.command::<redis::Value>(words).await;
    }
}

/// Makes the server refuse all clients but the probe.
async fn refuse_clients(server: &RedisServer, lasts: Duration) {
    let mut probe = server.probe().await;
    probe.command::<()>(vec!["CONFIG", "SET", "maxclients", "1"]).await;
    probe.disconnect_others().await;
    sleep(lasts).await;
    probe.command::<()>(vec!["CONFIG", "SET", "maxclients", "1000"]).await;
}

/// Runs an endless script and kills it after the time `lasts`. The server replies `BUSY` to other
/// commands once the script has run for longer than `lua-time-limit`.
async fn busy(server: &RedisServer, lasts: Duration) {
    let mut runs = server.probe().await;
    let script = runs.try_command::<()>(vec!["EVAL", "while true do end", "0"]);
    let kill = async {
        sleep(lasts).await;
        // SCRIPT KILL finds nothing to kill until the server counts the script as slow. Each try uses a new
        // connection, because the server may suspend a connection until the script ends.
        let killed = async || -> redis::RedisResult<()> {
            Probe::connect(&server.url()).await?.try_command(vec!["SCRIPT", "KILL"]).await
        };
        while killed().await.is_err() {
            sleep(AGAIN).await;
        }
    };
    let (ended, ()) = tokio::join!(script, kill);
    assert!(ended.is_err(), "an endless script ended");
}
