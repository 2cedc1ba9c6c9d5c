//! One connection to a server.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bb8_redis::redis::aio::MultiplexedConnection;
use bb8_redis::redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::commands;
use super::health::Health;
use super::probation::{Probation, Standing};
use super::script::Script;
use super::waiting::Waiting;
use super::wall_clock::Reading;
use crate::error::NodeError;

/// One connection, shared by all who ask. Belongs to one life of a server: when that ends, the
/// connection does too.
pub(super) struct Link {
    handle: MultiplexedConnection,
    health: Arc<Health>,
    scripts: [String; Script::ALL.len()],
    pub(super) identity: Identity,
    standing: Standing,
    /// Whether a lock was asked for or extended since that was looked at.
    used: AtomicBool,
    waiting: Waiting,
}

/// What the server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Changes with every start of the server; `None` where the server does not tell.
    pub(super) run_id: Option<String>,
    /// How long it has been running, in whole seconds; `None` where the server does not tell.
    pub(super) uptime: Option<Duration>,
    /// Whether it is in cluster mode; `false` where the server does not tell.
    pub(super) is_cluster: bool,
    /// What it does when its memory is full; `None` where the server does not tell.
    pub(super) maxmemory_policy: Option<String>,
    /// What its wall clock showed; `None` where the server does not tell.
    pub(super) time: Option<Reading>,
}

impl Link {
    pub(super) fn new(
        handle: MultiplexedConnection,
        health: Arc<Health>,
        scripts: [String; Script::ALL.len()],
        identity: Identity,
    ) -> Self {
        Self {
            handle,
            health,
            scripts,
            identity,
            standing: Standing::default(),
            used: AtomicBool::new(false),
            waiting: Waiting::default(),
        }
    }

    /// Lets the server grant no lock before its probation is over.
    pub(super) fn put_on(&self, probation: Probation) {
        self.standing.put_on(probation);
    }

    /// Whether the server may be asked to set a lock, or why not.
    pub(super) fn may_grant(&self) -> Result<(), NodeError> {
        self.standing.check()
    }

    /// Notes that a lock is asked for or extended.
    pub(super) fn note_use(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Whether it was noted since it was looked at last.
    pub(super) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.health.is_alive()
    }

    /// Gives the connection up where the server has been silent for longer than `limit`, although it
    /// was asked: something on the way may take what is sent, and lead nowhere. TCP does not notice
    /// that.
    ///
    /// What was asked before may still be executed. It has its clean-up behind it on the same
    /// connection, as long as `limit` is longer than a ballot waits (invariant 6).
    pub(super) fn abandon_if_silent_for(&self, limit: Duration) {
        if self.unresponsive_for(limit, Instant::now()).is_some() {
            self.health.end(&format!("no answer for {limit:?}"));
        }
    }

    /// Ends the connection, so that there can be another one.
    pub(super) fn end(&self, reason: &str) {
        self.health.end(reason);
    }

    /// Waits until the connection is broken.
    pub(super) async fn broken(&self) -> Arc<str> {
        self.health.broken().await
    }

    /// Sends one command and waits for the reply. Dropped after the first poll, the command may
    /// be sent nevertheless.
    ///
    /// Nothing is sent once the connection has ended: what cleans up behind it would go over another
    /// one, and might get there first (invariant 6).
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut handle = self.handle.clone();
        // Unconstrained, so that the first poll sends even where the task's budget is used up: what
        // is polled first has to be sent first (invariant 6).
        let reply = tokio::task::unconstrained(handle.send_packed_command(command));
        let reply = pin!(async { reply.await.and_then(Value::extract_error) });
        self.answer(reply).await
    }

    /// Waits for a reply, unless the connection has ended or ends meanwhile: what is put into its queue
    /// just then stays there, and is told nothing, for as long as somebody keeps the connection. Where
    /// it is not polled for another reason, it is to be polled now and then
    /// ([`patiently`](crate::node::patiently)).
    async fn answer<T>(
        &self,
        mut reply: Pin<&mut impl Future<Output = Result<T, RedisError>>>,
    ) -> Result<T, RedisError> {
        if let Some(error) = self.health.ended() {
            return Err(error);
        }
        let question = self.waiting.begin();
        let reply = std::future::poll_fn(|cx| match reply.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Ok(reply)),
            Poll::Pending => {
                self.health.ended().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
            }
        });
        let reply = reply.await?;
        question.answered();
        reply.inspect_err(|error| self.health.note(error))
    }

    /// Runs a script, loading it again where the server has forgotten it (`SCRIPT FLUSH`).
    pub(super) async fn run(
        &self,
        script: Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Value, RedisError> {
        self.run_command(script, &self.command(script, keys, arguments)).await
    }

    /// As [`run`](Self::run), where the [`command`](Self::command) is there already.
    pub(super) async fn run_command(
        &self,
        script: Script,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        // Always wanted, so there is a reply.
        let not_asked = || Err((ErrorKind::Client, "not asked").into());
        self.run_known(|| true, script, command).await.unwrap_or_else(not_asked)
    }

    /// The command that runs a script.
    pub(super) fn command(&self, script: Script, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        commands::run(&self.scripts[script.index()], keys, arguments)
    }

    /// As [`run`](Self::run), but does not ask again if it is not `wanted` any more when the script
    /// is loaded; `None` then.
    pub(super) async fn run_if(
        &self,
        wanted: impl Fn() -> bool,
        script: Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Option<Result<Value, RedisError>> {
        self.run_known(wanted, script, &self.command(script, keys, arguments)).await
    }

    async fn run_known(
        &self,
        wanted: impl Fn() -> bool,
        script: Script,
        command: &Cmd,
    ) -> Option<Result<Value, RedisError>> {
        let mut reply = self.ask(command).await;
        if reply.as_ref().is_err_and(is_no_script) {
            reply = self.ask(&commands::load(script)).await;
            if reply.is_ok() {
                if !wanted() {
                    return None;
                }
                // Once: who flushes all the time gets the error.
                reply = self.ask(command).await;
            }
        }
        Some(reply.map_err(|error| super::reply::name_commands(script, error)))
    }

    /// Subscribes to channels, and waits until the server has confirmed it.
    pub(super) async fn subscribe(&self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        let channels: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut handle = self.handle.clone();
        self.answer(pin!(handle.subscribe(channels))).await
    }

    /// Ends the subscription to channels.
    pub(super) async fn unsubscribe(&self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        let channels: Vec<&str> = channels.iter().map(|channel| &**channel).collect();
        let mut handle = self.handle.clone();
        self.answer(pin!(handle.unsubscribe(channels))).await
    }

    /// How long the server has been silent, if that is for longer than `limit` and long enough to
    /// take it for unresponsive.
    pub(super) fn unresponsive_for(&self, limit: Duration, now: Instant) -> Option<Duration> {
        self.waiting.unresponsive_for(limit, now)
    }
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("alive", &self.is_alive())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::super::scripted::tests::link;
    use super::super::waiting::SUSPICION;
    use super::*;
    use crate::node::patiently;

    /// Otherwise it would wait for ever: the connection leads nowhere, and does not break.
    #[tokio::test(start_paused = true)]
    async fn what_waits_on_a_connection_that_is_given_up_ends() {
        let (link, _server) = link().await;
        let link = Arc::new(link);
        let ask = || {
            let link = Arc::clone(&link);
            tokio::spawn(async move { patiently(link.ask(&bb8_redis::redis::cmd("PING"))).await })
        };
        let before = ask();
        tokio::task::yield_now().await;
        link.abandon_if_silent_for(Duration::ZERO);
        assert!(link.is_alive(), "suspected");
        tokio::time::sleep(SUSPICION).await;
        link.abandon_if_silent_for(Duration::ZERO);
        assert!(!link.is_alive());
        let ended = async { (before.await.unwrap(), ask().await.unwrap()) };
        let (before, after) = tokio::time::timeout(Duration::from_secs(5), ended).await.unwrap();
        assert!(before.unwrap_err().is_io_error());
        assert!(after.unwrap_err().is_io_error());
    }

    /// Invariant 6: the clean-up goes over the next connection, and nothing holds it up until this has
    /// arrived. Something on the way may still deliver what was sent over this one.
    ///
    /// What is asked is sent by another task, unless nobody waits for the answer any more: now and then
    /// it would be faster.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_sent_over_a_connection_that_is_given_up() {
        let (link, mut server) = link().await;
        let sent = bb8_redis::redis::cmd("PING");
        let mut before = Box::pin(link.ask(&sent));
        assert!(futures_util::poll!(&mut before).is_pending());
        while link.is_alive() {
            link.abandon_if_silent_for(Duration::ZERO);
            tokio::task::yield_now().await;
        }
        let late = bb8_redis::redis::cmd("SET");
        for _ in 0..1000 {
            assert!(link.ask(&late).await.unwrap_err().is_io_error());
            tokio::task::yield_now().await;
        }
        assert!(before.await.unwrap_err().is_io_error());
        drop(link);
        let mut arrived = String::new();
        server.read_to_string(&mut arrived).await.unwrap();
        assert!(arrived.contains("PING") && !arrived.contains("SET"), "{arrived}");
    }

    /// Otherwise a release that is asked for at that moment would never be repeated.
    #[tokio::test(start_paused = true)]
    async fn what_waits_on_a_connection_that_has_ended_ends() {
        let (link, _server) = link().await;
        let link = Arc::new(link);
        let waiting = {
            let link = Arc::clone(&link);
            tokio::spawn(async move { patiently(link.ask(&bb8_redis::redis::cmd("PING"))).await })
        };
        tokio::task::yield_now().await;
        link.health.end("the server closed the connection");
        let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        assert!(ended.unwrap().unwrap().unwrap_err().is_io_error());
    }
}
