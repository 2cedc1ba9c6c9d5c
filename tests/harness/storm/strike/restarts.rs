//! Servers that are killed, and started again with more or less of their data.

use std::time::Duration;

use tokio::time::sleep;

use super::Fault;
use crate::append_only_file::AppendOnlyFile;
use crate::redis_server::RedisServer;
use crate::storm::OWN_KEYS;
use crate::storm::keys::keys_in;

/// The most that a power cut takes away, in bytes: what storms write in half a second or more.
const UNWRITTEN: u64 = 64 * 1024;
/// The longest command that begins before it and is lost with it.
const ONE_COMMAND: usize = 1000;
/// Of a server that sleeps after each command, for as short a time as it can: how long it takes to load
/// one. It looks at its clients after each thousand.
const LOADING: &str = "1";
const ONE_LOADED: Duration = Duration::from_micros(100);

/// Returns the keys about which the server has forgotten something.
pub(super) async fn restart(
    server: &mut RedisServer,
    fault: Fault,
    lasts: Duration,
    choice: u64,
) -> Vec<String> {
    server.kill();
    let file = AppendOnlyFile::of(server);
    let mut forgotten = Vec::new();
    match fault {
        Fault::Restart | Fault::RestartAtOnce => file.cut(0),
        Fault::PowerCut | Fault::PowerCutAtOnce => {
            let lost = usize::try_from(choice % UNWRITTEN).unwrap_or_default();
            forgotten = keys_in(file.tail(lost + ONE_COMMAND), OWN_KEYS);
            let kept = file.length().saturating_sub(lost);
            file.cut(kept);
        }
        Fault::Loading => {
            let much = lasts.as_micros() / ONE_LOADED.as_micros();
            file.pad(usize::try_from(much).unwrap_or_default());
            server.restart_with("key-load-delay", LOADING).await;
            return forgotten;
        }
        Fault::RestartWithData => {}
        _ => unreachable!("{fault} restarts nothing"),
    }
    // From when it is gone: until then it may have voted.
    sleep(lasts).await;
    server.restart().await;
    forgotten
}
