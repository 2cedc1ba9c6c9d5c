//! Sends an operation, and sends it again if no server has executed it.
//!
//! * A server of a cluster that answers `MOVED` or `ASK` has not executed the command. The operation is sent to the server
//!   that the answer names.
//! * A server that answers `TRYAGAIN` has some of the keys, and another server has the rest. The operation is repeated after
//!   a pause.
//! * A server that answers `NOSCRIPT` has forgotten its scripts (`SCRIPT FLUSH`). The script is loaded first.
//!
//! An operation with the token of an attempt is not sent again once the release of the attempt was sent (an abandoned attempt
//! leaves nothing behind).
//!
//! The futures of rare cases are boxed, because they would enlarge the future of every operation.

use std::sync::Arc;
use std::time::Duration;

use bb8_redis::redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use super::encode::NativeCommand;
use super::error::name_commands;
use super::inspection::Inspect;
use super::link::Prefix;
use super::pending::PendingSend;
use super::script::Script;
use super::server::Server;
use super::server::connection::Connection;
use super::state::RedisState;
use super::{encode, fair, operation, reply};
use crate::error::{NodeError, Vote};
use crate::jitter::jitter;
use crate::lock::Dialect;
use crate::node::{Action, NodeStatus, Op, QueueAction, QueueOp, QueueReply, Reply, ReplyFuture};

/// The most redirects without a pause. While a slot moves, a server may answer `MOVED` and the next one `ASK`. Servers that
/// do not agree on the owner yet redirect to each other, until they have heard of the new one.
const MAX_REDIRECTS: usize = 3;

/// The range of the pauses in milliseconds before an operation is repeated that no server could execute yet.
const PAUSES: std::ops::Range<u64> = 20..50;

/// A command that may be sent to one server after another.
#[derive(Clone, Copy)]
enum Repeatable<'a> {
    /// An operation on a lock, with its record if it has one.
    Op(&'a Op, Option<&'a PendingSend<'a>>),
    /// Looks up the remaining time to live of a lock that was refused.
    LookUp(&'a Op),
    /// Gives readers their turn after the release of a lock.
    Turn(&'a Op),
    Queue(&'a QueueOp),
    Inspect(&'a Inspect),
}

impl Repeatable<'_> {
    /// Returns the name of the lock, which determines the slot.
    fn lock(&self) -> &str {
        match self {
            Self::Op(op, _) | Self::LookUp(op) | Self::Turn(op) => op.spec.name(),
            Self::Queue(op) => op.spec.name(),
            Self::Inspect(question) => question.spec.name(),
        }
    }

    fn script(&self) -> Option<Script> {
        match self {
            Self::Op(op, _) => Script::of(op),
            Self::LookUp(_) => Some(Script::Acquire),
            Self::Turn(_) => Some(Script::Turn),
            Self::Queue(_) => Some(Script::Fair),
            Self::Inspect(question) => Some(question.script()),
        }
    }

    fn encode(&self, connection: &Connection, is_tracked: bool) -> Arc<[u8]> {
        match self {
            Self::Op(op, _) => operation::encode(
                op,
                self.script().map(|script| connection.sha(script)),
                is_tracked,
            ),
            Self::LookUp(op) => operation::encode_look_up(connection, op),
            Self::Turn(op) => operation::encode_turn(connection, op),
            Self::Queue(op) => encode::packed(&fair::encode(op, connection.sha(Script::Fair))),
            Self::Inspect(question) => {
                encode::packed(&question.encode(connection.sha(question.script())))
            }
        }
    }

    /// Returns the connection over which the command may be sent.
    fn connection(&self, server: &Server) -> Result<Arc<Connection>, NodeError> {
        match self {
            Self::Op(op, _) => {
                let is_release = matches!(op.action, Action::Release { .. });
                let connection = server.connection_for(is_release)?;
                if let Action::Acquire { .. } = op.action {
                    server.gate.check_grants()?;
                }
                Ok(connection)
            }
            Self::LookUp(_) | Self::Turn(_) | Self::Inspect(_) => server.connection(),
            Self::Queue(op) => {
                server.connection_for(matches!(op.action, QueueAction::Leave { .. }))
            }
        }
    }
}

/// Where a command is sent.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) server: Arc<Server>,
    pub(super) connection: Arc<Connection>,
    /// Whether the slot is moving to the server.
    is_asking: bool,
}

/// A command that was sent.
struct Sent {
    target: Target,
    /// Whether the command was sent before, and was not executed.
    is_repeated: bool,
    /// The reason why an extension does not count.
    not_counted: Option<NodeError>,
    reply: Result<Value, RedisError>,
}

/// The repetitions of a command that no server has executed yet.
struct Repetition {
    /// No pause begins later.
    until: Instant,
    /// The number of redirects since the last pause.
    redirects: usize,
    /// Whether a server was given the script.
    is_loaded: bool,
}

impl Repetition {
    fn new(until: Instant) -> Self {
        Self { until, redirects: 0, is_loaded: false }
    }
}

impl Sent {
    /// Returns the reply. If it is an error of a server that was announced, it names the server.
    fn explained(&self, reply: Reply) -> Reply {
        match reply.vote {
            Vote::Failed(reason) => Vote::Failed(self.target.server.explain(reason)).into(),
            _ => reply,
        }
    }

    /// Returns the reply, or a failure if the grant does not count: the gate of the server may have been closed before the
    /// server received the command, for example because its wall clock was stepped.
    fn counted(self, action: &Action, reply: Reply) -> Reply {
        if reply.vote != Vote::Agreed {
            return self.explained(reply);
        }
        let gate = &self.target.server.gate;
        let checked = match action {
            Action::Acquire { .. } => gate.check_grants(),
            Action::Extend { .. } | Action::Confirm { .. } => {
                self.not_counted.map_or_else(|| gate.check_extensions(), Err)
            }
            Action::Release { .. } | Action::Downgrade | Action::Withdraw { .. } => Ok(()),
        };
        checked.map_or_else(|reason| Vote::Failed(reason).into(), |()| reply)
    }
}

impl RedisState {
    /// Begins an operation other than a release. The server of the operation is known now, and the first poll of the future
    /// sends the operation to it.
    ///
    /// # Errors
    ///
    /// The reason why no server gets the operation.
    pub(super) fn execute(self: Arc<Self>, op: Op) -> Result<ReplyFuture, NodeError> {
        let target = self.owner(Repeatable::Op(&op, None))?;
        // Other operations need no reading of the clock.
        let looks_up = matches!(op.action, Action::Acquire { ask, .. } if !ask.skip_lookup);
        let begun = looks_up.then(Instant::now);
        Ok(ReplyFuture::new(async move {
            let is_acquisition = matches!(op.action, Action::Acquire { .. });
            let is_recorded =
                self.pending.keeps_abandoned || is_acquisition && Script::of(&op).is_some();
            let lease = longest_effect(&op.action);
            let pending = is_recorded.then(|| self.pending.begin(op.token, &target.server, lease));
            let command = Repeatable::Op(&op, pending.as_ref());
            let sent = match self.set_command(&op, &target) {
                Some(by) => Box::pin(self.send_several(command, &op, target, by)).await,
                None => self.send(command, target).await,
            };
            let sent = match sent {
                Ok(sent) => sent,
                Err(reason) => {
                    // No server has executed the operation.
                    if let Some(pending) = pending {
                        pending.answered();
                    }
                    return failed(reason);
                }
            };
            let reply = match (&op.action, command.script()) {
                (Action::Acquire { lease, .. }, None) => {
                    match (reply::acquired(&sent.reply), begun) {
                        (Some(vote), _) => vote.into(),
                        (None, begun) if begun.is_some() || self.is_foreign(&op) => {
                            let begun = begun.unwrap_or_else(Instant::now);
                            let limit = self.map.settings.node.node_timeout;
                            let until = begun + operation::look_up_time(*lease, limit);
                            Box::pin(self.look_up(&sent, &op, until)).await
                        }
                        (None, _) => Vote::held(None).into(),
                    }
                }
                (action, _) => reply::of_script(&sent.reply, action),
            };
            self.record_refusal(&op, &reply, &sent.target.connection);
            if let Some(pending) = pending {
                if sent.is_repeated
                    && is_acquisition
                    && reply.vote == Vote::Agreed
                    && pending.is_released()
                {
                    // The release follows the first command, but may have overtaken the second one.
                    let release = Op { action: Action::Release { min_hold: None }, ..op.clone() };
                    let _ =
                        Box::pin(self.send(Repeatable::Op(&release, None), sent.target.clone()))
                            .await;
                }
                if is_certain(&reply.vote) {
                    pending.answered();
                }
            }
            sent.counted(&op.action, reply)
        }))
    }

    /// Returns whether an acquisition waits behind a holder that publishes no release. The waiter then needs the look-up, by
    /// which it finds out whether the next holder does.
    fn is_foreign(&self, op: &Op) -> bool {
        self.subscriptions.is_foreign(op.spec.name())
    }

    /// Records whether the holder that has refused a waiter publishes its release. Other holders of Redisson locks do.
    fn record_refusal(&self, op: &Op, reply: &Reply, connection: &Connection) {
        let is_plain = op.spec.dialect() == Dialect::Plain;
        if matches!(op.action, Action::Acquire { .. })
            && matches!(reply.vote, Vote::Held { .. })
            && is_plain
        {
            let key = op.spec.key_at(reply.refused_key.unwrap_or_default());
            self.awaited.record(key.name(), true);
        }
        if let Action::Acquire { ask, .. } = op.action
            && let Vote::Held { holder: Some(_), label, .. } = &reply.vote
            && ask.waits
            && is_plain
        {
            let name = op.spec.key_at(reply.refused_key.unwrap_or_default()).name();
            self.subscriptions.refused(name, label.is_some(), connection);
        }
    }

    /// Records whether somebody waited for the release of an exclusive lock.
    fn record_release(&self, op: &Op, reply: &Reply) {
        if op.spec.dialect() == Dialect::Plain
            && !op.spec.mode().is_shared()
            && let Some(subscribers) = reply.subscribers
        {
            // Of several keys, the reply does not say which one somebody waited for.
            for name in op.spec.names().filter(|_| subscribers == 0 || !op.spec.has_several_keys())
            {
                self.awaited.record(name, subscribers > 0);
            }
        }
    }

    /// Executes a release. Its first poll sends the release to each server that may still execute an operation of the
    /// attempt, and to the owner of the slot.
    pub(super) async fn release(self: Arc<Self>, op: Op) -> Reply {
        let mut servers = self.pending.release(&op.token);
        let owner = self.map.owner(op.spec.name());
        if let Ok(owner) = &owner {
            if servers.iter().all(|server| Arc::ptr_eq(server, owner)) {
                return self.release_on(Arc::clone(owner), &op).await.unwrap_or_else(failed);
            }
            if !servers.iter().any(|server| Arc::ptr_eq(server, owner)) {
                servers.push(Arc::clone(owner));
            }
        }
        let releases = servers.into_iter().map(|server| self.release_on(server, &op));
        let replies = Box::pin(join_all(releases)).await;
        let reply = most_important(replies).unwrap_or_else(|| owner.map(|_| Vote::NotHeld.into()));
        reply.unwrap_or_else(failed)
    }

    async fn release_on(&self, server: Arc<Server>, op: &Op) -> Result<Reply, NodeError> {
        let command = Repeatable::Op(op, None);
        let target = self.target(command, Arc::clone(&server), false)?;
        let reply = if let Some(reply) = self.release_without_script(op, &target).await {
            reply
        } else {
            let sent = self.send(command, target).await?;
            let reply = sent.explained(reply::of_script(&sent.reply, &op.action));
            self.record_release(op, &reply);
            reply
        };
        // Otherwise the server may still have the lock, and the release is repeated.
        if !matches!(reply.vote, Vote::Failed(_)) {
            self.pending.released(&op.token, &server);
        }
        Ok(reply)
    }

    /// Sends the acquisition of several keys by this command, and by the script if the command does not grant them.
    async fn send_several(
        &self,
        command: Repeatable<'_>,
        op: &Op,
        target: Target,
        by: NativeCommand,
    ) -> Result<Sent, NodeError> {
        if let Some(reply) = self.set_several(op, &target, by).await {
            return Ok(Sent { target, is_repeated: false, not_counted: None, reply });
        }
        if let Repeatable::Op(_, Some(pending)) = command
            && !pending.redirect(&target.server)
        {
            return Err(abandoned());
        }
        // The release may have followed the command.
        let sent = self.send(command, target).await?;
        Ok(Sent { is_repeated: true, ..sent })
    }

    /// Gives readers their turn after the release of a lock.
    pub(super) async fn give_turn(&self, op: &Op, target: Target) -> Result<(), NodeError> {
        self.send(Repeatable::Turn(op), target).await.map(drop)
    }

    /// Returns the reply of a server that has refused the lock. Looks up the remaining time to live, but only until
    /// `until`, so that the vote is not late. The look-up grants nothing: a grant could follow the release of the attempt.
    async fn look_up(&self, refused: &Sent, op: &Op, until: Instant) -> Reply {
        // An attempt that was dropped outside of a runtime is polled there, and there are no timers.
        if Handle::try_current().is_ok()
            && let look_up = self.send(Repeatable::LookUp(op), refused.target.clone())
            && let Ok(Ok(sent)) = timeout_at(until, look_up).await
        {
            return reply::looked_up(&sent.reply);
        }
        Vote::held(None).into()
    }

    /// Executes an operation on a fair queue. Each may be executed twice.
    pub(super) async fn queue(self: Arc<Self>, op: QueueOp) -> Result<QueueReply, NodeError> {
        let command = Repeatable::Queue(&op);
        let sent = self.send(command, self.owner(command)?).await?;
        fair::decode(&sent.reply).map_err(|error| sent.target.server.explain(error))
    }

    /// Asks about the holders of a key, and decodes the reply. A removal may be executed twice: the id names one holder.
    pub(super) async fn inspect<T>(
        self: Arc<Self>,
        question: Inspect,
        decode: fn(&Result<Value, RedisError>) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let command = Repeatable::Inspect(&question);
        let sent = self.send(command, self.owner(command)?).await?;
        decode(&sent.reply).map_err(|error| sent.target.server.explain(error))
    }

    /// Returns the target of a command: the owner of the slot.
    fn owner(&self, command: Repeatable<'_>) -> Result<Target, NodeError> {
        self.target(command, self.map.owner(command.lock())?, false)
    }

    /// Returns the target of a command on a server. Reads the slots again if another server may own those of this master by
    /// now. A master with a closed gate stays the owner.
    fn target(
        &self,
        command: Repeatable<'_>,
        server: Arc<Server>,
        is_asking: bool,
    ) -> Result<Target, NodeError> {
        use NodeError::{ConnectionBroke, NoReply, NotConnected};
        let connection = command.connection(&server).inspect_err(|reason| {
            if matches!(reason, NotConnected(_) | ConnectionBroke(_) | NoReply(_)) {
                self.map.request_refresh();
            }
        })?;
        Ok(Target { server, connection, is_asking })
    }

    /// Sends a command by the first poll, and again if the server has not executed it. Returns an error if no server has.
    async fn send(&self, command: Repeatable<'_>, mut target: Target) -> Result<Sent, NodeError> {
        let mut repetition: Option<Repetition> = None;
        loop {
            let not_counted = target.server.gate.check_extensions().err();
            let prefix = match command {
                _ if target.is_asking => Prefix::Asking,
                Repeatable::Op(op, _) if self.watches.follow_extension(op, &target.connection) => {
                    Prefix::Caching
                }
                _ => Prefix::None,
            };
            let packed = command.encode(&target.connection, prefix == Prefix::Caching);
            let reply = target.connection.link.send_packed(packed, prefix);
            if let Repeatable::Op(op, _) = command
                && !target.is_asking
            {
                self.watches.read_behind(op, &target.connection);
            }
            let reply = reply.await;
            let mut sent = Sent { target, is_repeated: repetition.is_some(), not_counted, reply };
            if sent.reply.is_ok() {
                return Ok(sent);
            }
            let until = || Instant::now() + self.map.settings.node.node_timeout;
            let repetition = repetition.get_or_insert_with(|| Repetition::new(until()));
            if let Some(next) = Box::pin(self.next_target(&mut sent, command, repetition)).await? {
                target = next;
                continue;
            }
            if let (Err(error), Some(script)) = (&mut sent.reply, command.script()) {
                *error = name_commands(&script.commands(), error.clone());
            }
            return Ok(sent);
        }
    }

    /// Prepares the repetition of a command that no server has executed, and returns its target. Returns `None` if the command
    /// is not repeated, and the error is its reply.
    async fn next_target(
        &self,
        sent: &mut Sent,
        command: Repeatable<'_>,
        repetition: &mut Repetition,
    ) -> Result<Option<Target>, NodeError> {
        let Err(error) = &sent.reply else { return Ok(None) };
        let (kind, redirect) = (error.kind(), self.map.redirect(error));
        let (server, is_asking) =
            if kind == ErrorKind::Server(ServerErrorKind::NoScript) && !repetition.is_loaded {
                let Some(script) = command.script() else { return Ok(None) };
                // Only once: if the script is flushed again, the caller gets the error.
                repetition.is_loaded = true;
                if let Err(error) = sent.target.connection.link.send(&encode::load(script)).await {
                    sent.reply = Err(error);
                    return Ok(None);
                }
                (Arc::clone(&sent.target.server), sent.target.is_asking)
            } else if repetition.redirects < MAX_REDIRECTS
                && let Some(redirect) = &redirect
            {
                repetition.redirects += 1;
                let Some(server) = self.map.follow(redirect, &sent.target.server) else {
                    return Ok(None);
                };
                // A new server connects first, or fails to.
                let is_tried = |status: &NodeStatus| !matches!(status, NodeStatus::Connecting);
                server.status().wait_for(is_tried).await;
                (server, redirect.is_asking)
            } else if (kind == ErrorKind::Server(ServerErrorKind::TryAgain) || redirect.is_some())
            && Instant::now() < repetition.until
            // A guard may be dropped outside of a runtime, which polls its acquisition once more.
            && Handle::try_current().is_ok()
            {
                repetition.redirects = 0;
                sleep(Duration::from_millis(jitter(PAUSES))).await;
                // The slot may have moved meanwhile.
                let Ok(owner) = self.map.owner(command.lock()) else { return Ok(None) };
                (owner, false)
            } else {
                return Ok(None);
            };
        if let Repeatable::Op(_, Some(pending)) = command
            && !pending.redirect(&server)
        {
            return Err(abandoned());
        }
        self.target(command, server, is_asking).map(Some)
    }
}

fn abandoned() -> NodeError {
    NodeError::Server("the attempt was abandoned".into())
}

fn failed(reason: NodeError) -> Reply {
    Vote::Failed(reason).into()
}

/// Returns whether the server has executed the operation, or never will. A lock whose vote does not count stands on the
/// server, which has executed the operation.
fn is_certain(vote: &Vote) -> bool {
    use NodeError::{ConnectionBroke, NoReply, UnexpectedReply};
    !matches!(vote, Vote::Failed(NoReply(_) | ConnectionBroke(_) | UnexpectedReply))
}

/// Returns the reply of a release that was sent to several servers: the grant of the server that had the lock, or
/// otherwise a failure, so that the release is repeated.
fn most_important(replies: Vec<Result<Reply, NodeError>>) -> Option<Result<Reply, NodeError>> {
    replies.into_iter().min_by_key(|reply| match reply.as_ref().map(|reply| &reply.vote) {
        Ok(Vote::Agreed) => 0,
        Ok(Vote::Failed(_)) | Err(_) => 1,
        Ok(_) => 2,
    })
}

/// Returns how long a late execution of the operation can keep a lock.
fn longest_effect(action: &Action) -> Duration {
    match action {
        Action::Acquire { lease, .. } | Action::Extend { lease } => *lease,
        Action::Confirm { .. }
        | Action::Downgrade
        | Action::Release { .. }
        | Action::Withdraw { .. } => Duration::ZERO,
    }
}
