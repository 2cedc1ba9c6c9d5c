//! Watches a server's wall clock while locks are requested.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

use super::quarantine::Quarantine;
use super::wall_clock::{ClockStep, Reading};
use crate::clock::Clock;
use crate::error::NodeError;
use crate::log_limit::LogLimit;
use crate::node::redis::connection::Connection;
use crate::node::redis::{encode, error};
use crate::telemetry;

/// The pause between two readings. A step can go unnoticed for this long plus one round trip, and in that
/// time the server may grant a lock that is held.
const READING_INTERVAL: Duration = Duration::from_millis(500);

/// Watches the wall clock of one node over all of its connections.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    node: Arc<str>,
    clock: Arc<dyn Clock>,
    restart_guard: Option<Duration>,
    log_limit: Arc<LogLimit>,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    /// The last kept reading, also across a restart or failover of the server. The leases that the server
    /// has kept or copied end at a time on the wall clock, so a step affects them as well.
    last_reading: Option<Reading>,
    /// The quarantine after the last step. It outlasts the connection.
    quarantine: Option<Quarantine>,
}

impl ClockWatch {
    pub(crate) fn new(
        node: &Arc<str>,
        clock: &Arc<dyn Clock>,
        restart_guard: Option<Duration>,
        log_limit: &Arc<LogLimit>,
    ) -> Self {
        Self {
            node: Arc::clone(node),
            clock: Arc::clone(clock),
            restart_guard,
            log_limit: Arc::clone(log_limit),
            history: Mutex::default(),
        }
    }

    /// Continues with a new connection, before the node sends operations over it.
    pub(crate) fn begin(&self, connection: &Connection) {
        if let Some(quarantine) = self.history.lock().quarantine {
            connection.start(quarantine);
        }
        let Some(reading) = connection.identity.time else {
            self.warn_time_unavailable();
            return;
        };
        self.compare(connection, reading);
    }

    /// Reads the server's time periodically while locks are requested. With the restart guard, reads it when
    /// idle too: otherwise the first vote after an idle time would count before a step is detected.
    ///
    /// There is no timeout: a slow reading is useful too, and a server that owes the reply for too long
    /// counts as silent, as after every other command.
    pub(crate) async fn watch(&self, connection: &Connection) {
        let command = encode::time();
        while connection.identity.time.is_some() {
            sleep(READING_INTERVAL).await;
            let was_used = connection.was_used();
            if !was_used && self.restart_guard.is_none() {
                continue;
            }
            match Reading::take(&*self.clock, connection.send(&command)).await {
                Ok(reading) => self.compare(connection, reading),
                Err(error) if matches!(error::node_error(&error), NodeError::NotPermitted(_)) => {
                    self.warn_time_unavailable();
                    break;
                }
                // The operations on locks report a broken connection or a busy server.
                Err(_) => {}
            }
        }
        std::future::pending::<()>().await;
    }

    fn compare(&self, connection: &Connection, reading: Reading) {
        let step = match &mut self.history.lock().last_reading {
            Some(last_reading) => last_reading.compare(reading),
            unknown => {
                *unknown = Some(reading);
                return;
            }
        };
        match step {
            None => {}
            Some(ClockStep::Back(by)) => self.record_step("back", by, "leases on it last longer"),
            Some(ClockStep::Forward(by)) => {
                let mut effect =
                    "leases on it end early, so a second caller may get a lock that is held";
                if let Some(longest_lease) = self.restart_guard {
                    let quarantine = Quarantine::after_clock_step(longest_lease, by);
                    connection.start(quarantine);
                    self.history.lock().quarantine = Some(quarantine);
                    effect = "leases on it end early, so it grants no locks for the longest lease";
                }
                self.record_step("forward", by, effect);
            }
        }
    }

    fn record_step(&self, direction: &'static str, by: Duration, effect: &str) {
        telemetry::clock_stepped(&self.node, direction);
        if let Some(suppressed) = self.log_limit.admit(direction, &self.node) {
            tracing::warn!(
                node = %self.node, ?by, suppressed,
                "a node's wall clock was stepped {direction}, or does not keep time; {effect}"
            );
        }
    }

    fn warn_time_unavailable(&self) {
        if let Some(suppressed) = self.log_limit.admit("clock", &self.node) {
            tracing::warn!(
                node = %self.node, suppressed,
                "the time of the server is unknown (TIME denied), so steps of its wall clock go unnoticed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bb8_redis::redis::Value;
    use redlock_logs::Logs;
    use tokio::io::DuplexStream;
    use tokio::time::timeout;

    use super::*;
    use crate::clock::fake::RuntimeClock;
    use crate::error::Vote;
    use crate::key::LockKey;
    use crate::lock::{Dialect, LockSpec, Mode, Token};
    use crate::node::redis::connection::played_server::{played_connection, serve};
    use crate::node::redis::operation::execute;
    use crate::node::{Action, Op};

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    /// Returns the watch of a server that has reported its time once, the connection, and the end
    /// of the server.
    async fn watched(restart_guard: Option<Duration>) -> (ClockWatch, Connection, DuplexStream) {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
        let (mut connection, mut server) = played_connection();
        let command = encode::time();
        let take = Reading::take(&*clock, connection.send(&command));
        let reply = time(0);
        let (reading, ()) = tokio::join!(take, serve(&mut server, "TIME", &reply, || {}));
        connection.identity.time = Some(reading.unwrap());
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        let watch = ClockWatch::new(&"node".into(), &clock, restart_guard, &log_limit);
        watch.begin(&connection);
        (watch, connection, server)
    }

    /// Returns the reply to `TIME` of a server whose clock is ahead by some seconds.
    fn time(ahead: u64) -> String {
        format!("*2\r\n$10\r\n{}\r\n$1\r\n0\r\n", 1_790_000_000 + ahead)
    }

    /// Replies to every `TIME` of this period. Returns how many there were.
    async fn count(
        (watch, connection, server): &mut (ClockWatch, Connection, DuplexStream),
        reply: &str,
        period: Duration,
    ) -> usize {
        let count = Mutex::new(0);
        let serve = async {
            loop {
                serve(server, "TIME", reply, || *count.lock().unwrap() += 1).await;
            }
        };
        let both = async { tokio::join!(watch.watch(connection), serve) };
        assert!(timeout(period, both).await.is_err());
        count.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_read_only_while_locks_are_requested() {
        let mut watched = watched(None).await;
        assert_eq!(count(&mut watched, &time(0), 10 * SECOND).await, 0, "no lock was requested");
        watched.1.record_use();
        watched.1.record_use();
        assert_eq!(count(&mut watched, &time(10), 10 * SECOND).await, 1);
    }

    /// Without readings in idle times, the first vote afterwards would count before a step is
    /// noticed.
    #[tokio::test(start_paused = true)]
    async fn with_the_restart_guard_the_time_is_always_read() {
        let mut watched = watched(Some(LEASE)).await;
        let readings = count(&mut watched, &time(0), 10 * SECOND + READING_INTERVAL / 2).await;
        assert_eq!(readings, 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_denies_its_time_is_not_asked_again() {
        let mut watched = watched(Some(LEASE)).await;
        let denied = "-NOPERM this user has no permissions to run the 'time' command\r\n";
        assert_eq!(count(&mut watched, denied, 10 * SECOND).await, 1);
        assert_eq!(count(&mut watched, "-BUSY a script runs\r\n", 2 * SECOND).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_forward_keeps_a_guarded_server_from_granting_on_all_connections() {
        let mut watched = watched(Some(LEASE)).await;
        assert_eq!(watched.1.may_grant(), Ok(()));
        count(&mut watched, &time(60), SECOND).await;
        let error = watched.1.may_grant().unwrap_err();
        assert!(matches!(error, NodeError::ClockStepped { .. }), "{error}");
        // A second connection, which shows no step by itself.
        let (watch, ..) = watched;
        let (mut connection, _server) = played_connection();
        watch.begin(&connection);
        assert!(matches!(connection.may_grant(), Err(NodeError::ClockStepped { .. })));
        tokio::time::advance(LEASE).await;
        assert_eq!(connection.may_grant(), Ok(()));
        connection.identity.time = None;
        watch.begin(&connection);
        assert_eq!(connection.may_grant(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_back_and_a_step_without_the_guard_are_only_logged() {
        for (guard, ahead) in [(Some(LEASE), None), (None, Some(60))] {
            let mut watched = watched(guard).await;
            watched.1.record_use();
            let reply = ahead.map_or_else(|| time(0).replace("179", "178"), time);
            assert!(count(&mut watched, &reply, READING_INTERVAL + READING_INTERVAL / 2).await > 0);
            assert_eq!(watched.1.may_grant(), Ok(()), "{guard:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_steps_all_the_time_takes_one_line_of_each_kind_per_second() {
        let logs = Logs::collect();
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
        let (mut connection, _server) = played_connection();
        let log_limit = Arc::new(LogLimit::new(Arc::clone(&clock)));
        let watch = ClockWatch::new(&"stepped:1".into(), &clock, Some(LEASE), &log_limit);
        // Three seconds. One reading in three fails.
        for look in 0..30 {
            let seconds = ["1790000000", "1790000060"][look % 3 % 2];
            let reply = [seconds, "0"].map(|text| Value::BulkString(text.as_bytes().to_vec()));
            let reply = async { Ok(Value::Array(reply.to_vec())) };
            let reading = Reading::take(&*clock, reply).await.unwrap();
            connection.identity.time = (look % 3 < 2).then_some(reading);
            watch.begin(&connection);
            tokio::time::advance(SECOND / 10).await;
        }
        let lines = logs.lines();
        let count = |words: &str| {
            let is_one = |line: &&String| line.contains("stepped:1") && line.contains(words);
            lines.iter().filter(is_one).count()
        };
        for words in ["stepped forward", "stepped back", "time of the server is unknown"] {
            assert_eq!(count(words), 3, "{words}: {lines:?}");
        }
    }

    /// If the command was pending for long, the step may be older than the reply by as much.
    #[tokio::test]
    async fn a_grant_does_not_count_if_a_step_is_noticed_before_its_reply() {
        let key = LockKey::new("order:42").unwrap();
        let (connection, mut server) = played_connection();
        for (stepped, granted) in [(false, true), (true, false)] {
            let spec = LockSpec::new(key.clone(), Mode::Exclusive, Dialect::Plain);
            let action = Action::Acquire {
                lease: LEASE,
                fenced: false,
                lookup: false,
                met_marks: false,
                mark: None,
            };
            let op = Op::new(&spec, Token::random(Dialect::Plain), action);
            let acquire = execute(&connection, &op, None, LEASE, false);
            let step = || {
                if stepped {
                    connection.start(Quarantine::after_clock_step(LEASE, SECOND));
                }
            };
            let (reply, ()) = tokio::join!(acquire, serve(&mut server, "SET", "+OK\r\n", step));
            assert_eq!(reply.vote == Vote::Granted, granted, "{reply:?}");
        }
    }
}
