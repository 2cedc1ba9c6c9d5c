//! Keeps the nodes connected.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bb8_redis::bb8;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::outage_log::OutageLog;
use super::pauses::Pauses;
use super::pool::{Connector, PoolError};
use super::route::Route;
use super::{Connection, admission};
use crate::error::NodeError;
use crate::jitter::jitter;
use crate::node::redis::url::HostPort;
use crate::node::redis::{ConnectionState, RedisNode};

/// After a connection that lasted for less than this, the supervisor pauses.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// A connection is replaced when its server has been silent for this time, or for twice the node timeout if
/// that is longer.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// Keeps one node connected.
pub(crate) struct Supervisor {
    node: Weak<RedisNode>,
    name: Arc<str>,
    route: Route,
    pool: bb8::Pool<Connector>,
    /// The errors of the pool. Without this channel, `get` reports no error before the timeout of the pool.
    errors: mpsc::UnboundedReceiver<NodeError>,
}

impl Supervisor {
    pub(crate) fn new(node: &RedisNode) -> Self {
        let (sink, errors) = mpsc::unbounded_channel();
        let pool = bb8::Pool::builder()
            // One connection, which is multiplexed, so that commands keep their order (an abandoned attempt
            // leaves nothing behind).
            .max_size(1)
            .max_lifetime(None)
            .idle_timeout(None)
            // The supervisor itself tries again, with pauses.
            .retry_connection(false)
            .connection_timeout(node.settings.connect_timeout * 2)
            .error_sink(Box::new(Sink(sink)))
            .build_unchecked(Connector {
                route: node.route.clone(),
                connect_timeout: node.settings.connect_timeout,
                subscriptions: Arc::clone(&node.subscriptions),
                clock: Arc::clone(&node.settings.clock),
                reads_max_lag: node.settings.restart_guard.is_some()
                    && node.settings.failover_margin.is_none(),
                reads_in_slices: node.settings.is_only_server,
            });
        let (route, name) = (node.route.clone(), Arc::clone(node.route.name()));
        Self { node: Weak::clone(&node.weak_self), name, route, pool, errors }
    }

    /// Gets the connection of the pool, which makes a new one if the last one has broken.
    async fn connect(&mut self) -> Result<Arc<Connection>, NodeError> {
        // Discards the errors of earlier attempts.
        while self.errors.try_recv().is_ok() {}
        let connection = tokio::select! {
            biased;
            // The supervisor returns the connection to the pool at once, so `get` never waits for another
            // user of the pool.
            connection = self.pool.get() => connection.map(|connection| Arc::clone(&connection)).map_err(|error| match error {
                bb8::RunError::User(PoolError::Connect(error)) => error,
                bb8::RunError::User(PoolError::Stale) | bb8::RunError::TimedOut => {
                    NodeError::NotConnected("no connection in time".into())
                }
            })?,
            Some(error) = self.errors.recv() => return Err(error),
        };
        let Some(node) = self.node.upgrade() else {
            return Err(NodeError::NotConnected("the manager was dropped".into()));
        };
        // A refused connection must end. Otherwise the pool would return it again at the next attempt.
        admission::admit(&node, &connection)
            .inspect_err(|error| connection.link.end(&error.to_string()))?;
        node.set(ConnectionState::Up(Arc::clone(&connection)));
        Ok(connection)
    }

    /// Keeps the node connected until its manager is dropped.
    pub(crate) async fn keep_connected(mut self) {
        let mut address = self.route.address();
        let mut attempt = self.connect().await;
        let mut log = OutageLog::new(&self.name);
        if let Err(error) = &attempt {
            log.down(error);
        }
        let mut pauses = Pauses::new();
        loop {
            match attempt {
                Ok(connection) => {
                    let since = Instant::now();
                    log.up();
                    let Some(reason) = self.serve_until_broken(&connection).await else {
                        return;
                    };
                    // Pending replies must fail, instead of waiting on a connection that is being replaced.
                    connection.link.end(&reason);
                    // Nothing may be written any more once there is another connection.
                    connection.link.stopped().await;
                    let Some(node) = self.node.upgrade() else {
                        return;
                    };
                    node.incarnations
                        .lock()
                        .disconnected(connection.identity.generation().as_deref());
                    drop(connection);
                    let down = ConnectionState::Down(NodeError::NotConnected(Arc::clone(&reason)));
                    node.set(down);
                    log.down(&reason);
                    drop(node);
                    if since.elapsed() >= SHORT_LIVED {
                        pauses.reset();
                    } else {
                        self.pause(pauses.after_break(), address.as_ref()).await;
                    }
                }
                Err(error) => {
                    let Some(node) = self.node.upgrade() else {
                        return;
                    };
                    tracing::debug!(node = %self.name, %error, "cannot connect to a node");
                    log.still_down(&error);
                    let pause = pauses.after(&error);
                    node.set(ConnectionState::Down(error));
                    drop(node);
                    self.pause(pause, address.as_ref()).await;
                }
            }
            if self.node.strong_count() == 0 {
                return;
            }
            address = self.route.address();
            attempt = self.connect().await;
        }
    }

    /// Pauses before the next attempt to connect, for a time that is jittered by a quarter. There is no reason to pause if the route has left this address.
    async fn pause(&self, pause: Duration, address: Option<&HostPort>) {
        // Both outcomes end the pause.
        let _ = timeout(jittered(pause), self.route.leaves(address)).await;
    }

    /// Waits until the connection breaks, and returns the reason. Returns `None` when the node is dropped.
    async fn serve_until_broken(&self, connection: &Connection) -> Option<Arc<str>> {
        let (dropped, subscriptions, clock_watch, log_limit, silence_limit, connect_timeout) = {
            let node = self.node.upgrade()?;
            let silence_limit = silence_limit(node.settings.node_timeout);
            let (subscriptions, log_limit) =
                (Arc::clone(&node.subscriptions), Arc::clone(&node.log_limit));
            let clock_watch = Arc::clone(&node.clock_watch);
            let dropped = node.dropped.clone();
            (
                dropped,
                subscriptions,
                clock_watch,
                log_limit,
                silence_limit,
                node.settings.connect_timeout,
            )
        };
        let serve = subscriptions.serve(connection, &self.name, &log_limit);
        let watch = clock_watch.watch(connection);
        let silence = connection.end_when_silent_for(silence_limit);
        let address = connection.master.as_ref().map(|master| &master.address);
        let leaves = self.route.leaves(address);
        let authentication = connection.keep_authenticated(&self.name, connect_timeout);
        tokio::pin!(serve, watch, silence, leaves, authentication);
        loop {
            tokio::select! {
                biased;
                reason = connection.link.ended() => return Some(reason),
                () = &mut serve => {}
                () = &mut watch => {}
                () = &mut authentication => {}
                () = &mut silence => return Some(connection.link.ended().await),
                () = &mut leaves => return Some("another server was promoted".into()),
                () = dropped.cancelled() => return None,
            }
        }
    }
}

/// Returns the silence of a server after which its connection is replaced. A round that waits for the node
/// has ended by then, so that the clean-up of its attempt was sent over the same connection (an abandoned
/// attempt leaves nothing behind).
fn silence_limit(node_timeout: Duration) -> Duration {
    SILENCE_LIMIT.max(node_timeout * 2)
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(jitter(0.75..1.25))
}

/// Sends the pool's errors to the supervisor.
#[derive(Clone)]
struct Sink(mpsc::UnboundedSender<NodeError>);

impl bb8::ErrorSink<PoolError> for Sink {
    fn sink(&self, failure: PoolError) {
        if let PoolError::Connect(error) = failure {
            // Fails if the supervisor was dropped, and then the error is not needed.
            let _ = self.0.send(error);
        }
    }

    fn boxed_clone(&self) -> Box<dyn bb8::ErrorSink<PoolError>> {
        Box::new(self.clone())
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_outlasts_every_round_that_waits_for_its_server() {
        for millis in [1, 1000, 2400, 2600, 10_000, 60_000] {
            let node_timeout = Duration::from_millis(millis);
            let limit = silence_limit(node_timeout);
            assert!(limit >= node_timeout * 2 && limit >= SILENCE_LIMIT, "{millis}: {limit:?}");
        }
    }
}
