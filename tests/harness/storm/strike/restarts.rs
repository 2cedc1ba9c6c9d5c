//! Kills servers and restarts them with all, a part, or none of their data.

use std::time::Duration;

use tokio::time::sleep;

use super::Fault;
use crate::append_only_file::AppendOnlyFile;
use crate::redis_server::RedisServer;
use crate::storm::OWN_KEYS;
use crate::storm::keys::keys_in;

/// The most data that a power cut destroys, in bytes. A storm writes this much in half a second or more.
const UNWRITTEN: u64 = 64 * 1024;
/// The length of the longest command, in bytes. A command that begins before the lost data is lost with it.
const ONE_COMMAND: usize = 1000;
/// The value of `key-load-delay`: the shortest sleep of a server after each command that it loads. The server
/// serves its clients after each thousand commands.
const LOADING: &str = "1";
/// The time in which a server with this sleep loads one command.
const ONE_LOADED: Duration = Duration::from_micros(100);

/// Kills and restarts a server. Returns the keys of single clients about which the server has lost commands.
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
        _ => unreachable!("{fault:?} restarts nothing"),
    }
    // The time counts from the end of the process, which may have voted until then.
    sleep(lasts).await;
    server.restart().await;
    forgotten
}
