//! Acquisitions that are a script.

use std::time::Duration;

use crate::error::{NodeError, Vote};
use crate::node::Claim;
use crate::node::redis::connection::Connection;
use crate::node::redis::encode::millis;
use crate::node::redis::script::Scripts;
use crate::node::redis::{decode, release};

/// Sets the lock, and numbers it if it is to be numbered.
pub(crate) async fn acquire(link: &Connection, claim: &Claim, expire: Duration) -> Vote {
    let (name, millis) = (claim.name().as_str(), millis(expire));
    let arguments = [claim.token().as_bytes(), millis.as_bytes()];
    let scripts = Scripts::of(claim.dialect());
    let (script, keys) = match (claim.counter(), scripts.acquire) {
        (None, Some(script)) => (script, [Some(name), None]),
        (counter, _) => (scripts.acquire_fenced, [Some(name), counter]),
    };
    let keys: Vec<&str> = keys.into_iter().flatten().collect();
    let wanted = || !claim.is_given_up();
    let vote = match link.run_if(wanted, script, &keys, &arguments).await {
        Some(reply) => decode::acquired_by_script(&reply, claim),
        None => Vote::Failed(NodeError::Server("the attempt was given up".into())),
    };
    // A server that had forgotten the script was asked twice, and the release may have overtaken
    // the second question (invariant 6).
    if vote == Vote::Granted && claim.is_given_up() {
        let _ = release(link, claim).await;
    }
    vote
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use bb8_redis::redis::RedisConnectionInfo;
    use bb8_redis::redis::aio::MultiplexedConnection;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::key::LockKey;
    use crate::node::redis::connection::Identity;
    use crate::node::redis::connection::pool::settings;
    use crate::node::redis::connection::socket::Socket;
    use crate::node::redis::connection::traffic::MeteredSocket;
    use crate::node::redis::script::Script;
    use crate::node::{Dialect, LockName};

    const EXPIRE: Duration = Duration::from_secs(30);

    fn claim() -> Claim {
        let key = LockKey::new("order:42").unwrap();
        Claim::new(LockName::new("", &key, Dialect::Redisson), key)
    }

    /// A connection to a test that plays the server. The scripts are called by their names.
    pub(crate) async fn link() -> (Connection, DuplexStream) {
        let (client, server) = tokio::io::duplex(4096);
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (socket, traffic) = MeteredSocket::new(Socket::Duplex(client));
        let connection = MultiplexedConnection::new_with_config(&info, socket, settings()).await;
        let (handle, driver) = connection.unwrap();
        tokio::spawn(driver);
        let names = Script::ALL.map(|script| script.name().to_owned());
        (Connection::new(handle, Arc::default(), traffic, names, Identity::default()), server)
    }

    /// Takes the next command, which has to contain `word`, and answers it; before that, does
    /// `meanwhile`.
    pub(crate) async fn serve(
        server: &mut DuplexStream,
        word: &str,
        reply: &str,
        meanwhile: impl Fn(),
    ) {
        let mut buffer = [0; 4096];
        let count = server.read(&mut buffer).await.unwrap();
        let command = String::from_utf8_lossy(&buffer[..count]);
        assert!(command.contains(word), "{command}");
        meanwhile();
        server.write_all(reply.as_bytes()).await.unwrap();
    }

    const NO_SCRIPT: &str = "-NOSCRIPT No matching script.\r\n";

    /// Invariant 6: what cleans up behind it is on its way already, and would be overtaken.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_given_up_is_not_asked_for_again() {
        let (link, mut server) = link().await;
        let claim = claim();
        let server = async {
            serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || claim.give_up()).await;
            // A question after these would be answered by nobody.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            vote = acquire(&link, &claim, EXPIRE) => {
                assert!(matches!(vote, Vote::Failed(_)), "{vote}");
            }
            () = server => unreachable!(),
            () = tokio::time::sleep(EXPIRE) => panic!("it was asked again"),
        }
    }

    /// Invariant 6, the other order.
    #[tokio::test(start_paused = true)]
    async fn what_is_granted_after_it_was_given_up_is_released() {
        let (link, mut server) = link().await;
        let claim = claim();
        let server = async {
            serve(&mut server, "redisson/acquire", NO_SCRIPT, || {}).await;
            serve(&mut server, "LOAD", "+sha\r\n", || {}).await;
            serve(&mut server, "redisson/acquire", "+OK\r\n", || claim.give_up()).await;
            serve(&mut server, "redisson/release", ":1\r\n", || {}).await;
        };
        let asked = async { tokio::join!(acquire(&link, &claim, EXPIRE), server) };
        tokio::time::timeout(EXPIRE, asked).await.expect("it was released");
    }
}
