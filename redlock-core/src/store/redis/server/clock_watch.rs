//! Watches a server's wall clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bb8_redis::redis::{ErrorKind, FromRedisValue, RedisError, Value, cmd};
use tokio::time::sleep;

use super::Inner;
use crate::clock::Clock;
use crate::error::NodeError;
use crate::log_limited;
use crate::store::kit::wall_clock::{READING_INTERVAL, Reading};
use crate::store::redis::error;
use crate::store::redis::link::Link;

/// Reads the server's wall clock.
pub(super) async fn read_clock(clock: &dyn Clock, link: &Link) -> Result<Reading, RedisError> {
    let ask = async {
        let reply = link.send(&cmd("TIME")).await?;
        decode(&reply).ok_or_else(|| (ErrorKind::UnexpectedReturnType, "this is no time").into())
    };
    Reading::take(clock, ask).await
}

/// Decodes the reply to `TIME`: seconds and microseconds.
fn decode(reply: &Value) -> Option<Duration> {
    let (seconds, micros) = <(u64, u64)>::from_redis_value_ref(reply).ok()?;
    Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))
}

impl Inner {
    /// Begins to watch the wall clock over a new connection, over which the server has reported this time, or has not for
    /// this reason.
    pub(super) fn begin_clock_watch(&self, reading: Result<Reading, Option<&str>>) {
        match reading {
            Ok(reading) => self.compare_clock(reading),
            Err(reason) => self.warn_time_unavailable(reason),
        }
    }

    /// Reads the server's time twice a second while it is needed: with a `restart_guard` always, because otherwise the first
    /// vote after an idle time would count before a step is detected; without one after each use of the connection, so that
    /// a step is logged. A caller that waits or renews a lease uses it, too. Without a use nothing is sent. Ends when the
    /// server denies its time.
    ///
    /// There is no timeout: a slow reading is useful too, and a server that owes the reply for too long
    /// counts as silent, as after every other command.
    pub(super) async fn watch_clock(&self, link: &Link) {
        loop {
            sleep(READING_INTERVAL).await;
            let is_used = self.is_used.swap(false, Ordering::Relaxed);
            if !is_used && self.settings.node.restart_guard.is_none() {
                continue;
            }
            match read_clock(&*self.settings.node.clock, link).await {
                Ok(reading) => self.compare_clock(reading),
                Err(error) if matches!(error::node_error(&error), NodeError::NotPermitted(_)) => {
                    return self.warn_time_unavailable(Some(&error::refusal("TIME", &error)));
                }
                // The operations on locks report a broken connection or a busy server.
                Err(_) => {}
            }
        }
    }

    fn compare_clock(&self, reading: Reading) {
        // The first reading shows no step.
        let step = self.last_reading.lock().get_or_insert(reading).compare(reading);
        if let Some(step) = step {
            let restart_guard = self.settings.node.restart_guard;
            step.report(self.name(), &self.gate, restart_guard, &self.settings.log_limit);
        }
    }

    fn warn_time_unavailable(&self, reason: Option<&str>) {
        let server = self.name();
        log_limited!(
            self.settings.log_limit, "clock", server, warn, node = %server, reason,
            "the time of the server is unknown, so steps of its wall clock go unnoticed"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use redlock_logs::Logs;
    use tokio::io::DuplexStream;
    use tokio::time::timeout;

    use super::super::connection::Connection;
    use super::super::played_server::{played_connection, serve};
    use super::super::{Role, Server, ServerSettings};
    use super::*;
    use crate::node::NodeSettings;

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn stepped(restart_guard: Option<Duration>) -> Arc<Server> {
        let settings = NodeSettings { restart_guard, ..NodeSettings::for_tests(LEASE) };
        let settings = ServerSettings::for_tests(settings);
        Server::for_tests(Role::Alone, ServerSettings { voter: "stepped:1".into(), ..settings })
    }

    /// Returns the watch of a server that has reported its time once, the connection, and the end
    /// of the server.
    async fn watched(restart_guard: Option<Duration>) -> (Arc<Server>, Connection, DuplexStream) {
        let watch = stepped(restart_guard);
        let (connection, mut server) = played_connection();
        let take = read_clock(&*watch.settings.node.clock, &connection.link);
        let reply = time(0);
        let (reading, ()) = tokio::join!(take, serve(&mut server, "TIME", &reply, || {}));
        watch.begin_clock_watch(Ok(reading.unwrap()));
        (watch, connection, server)
    }

    /// Returns the reply to `TIME` of a server whose clock is ahead by some seconds.
    fn time(ahead: u64) -> String {
        format!("*2\r\n$10\r\n{}\r\n$1\r\n0\r\n", 1_790_000_000 + ahead)
    }

    /// Replies to every `TIME` of this period. Returns how many there were.
    async fn count(
        (watch, connection, server): &mut (Arc<Server>, Connection, DuplexStream),
        reply: &str,
        period: Duration,
    ) -> usize {
        let count = Mutex::new(0);
        let serve = async {
            loop {
                serve(server, "TIME", reply, || *count.lock().unwrap() += 1).await;
            }
        };
        let both = async { tokio::join!(watch.watch_clock(&connection.link), serve) };
        assert!(timeout(period, both).await.is_err());
        count.into_inner().unwrap()
    }

    /// With the guard, the first vote after an idle time would otherwise count before a step is noticed.
    #[tokio::test(start_paused = true)]
    async fn the_time_of_an_idle_server_is_read_only_for_the_guard() {
        for (guard, expected) in [(None, 0), (Some(LEASE), 20)] {
            let mut watched = watched(guard).await;
            let readings = count(&mut watched, &time(0), 10 * SECOND + READING_INTERVAL / 2).await;
            assert_eq!(readings, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_read_once_after_each_use() {
        let logs = Logs::collect();
        let mut watched = watched(None).await;
        for ahead in [0, 60] {
            // A request without a connection counts, too: it is about to be repeated.
            for _ in 0..3 {
                assert!(watched.0.connection_for(false).is_err());
            }
            assert_eq!(count(&mut watched, &time(ahead), 10 * SECOND).await, 1);
        }
        assert_eq!(logs.count("WARN", "stepped forward"), 1, "in the idle time");
    }

    #[test]
    fn only_a_time_is_decoded() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let time = Value::Array(vec![text("1790000000"), text("000042")]);
        let expected = Duration::from_secs(1_790_000_000) + Duration::from_micros(42);
        assert_eq!(decode(&time), Some(expected));
        for other in [
            Value::Nil,
            Value::Int(1_790_000_000),
            Value::Array(vec![text("1790000000")]),
            Value::Array(vec![text("1790000000"), text("-1")]),
            Value::Array(vec![text("x"), text("1")]),
            Value::Array(vec![text(&u64::MAX.to_string()), text("1000000")]),
        ] {
            assert_eq!(decode(&other), None, "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_denies_its_time_is_not_asked_again() {
        let mut watched = watched(Some(LEASE)).await;
        let denied = "-NOPERM this user has no permissions to run the 'time' command\r\n";
        assert_eq!(count(&mut watched, denied, 10 * SECOND).await, 1);
        assert_eq!(count(&mut watched, "-BUSY a script runs\r\n", 2 * SECOND).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_forward_keeps_a_guarded_server_from_granting() {
        let mut watched = watched(Some(LEASE)).await;
        let server = Arc::clone(&watched.0);
        let gate = &server.gate;
        assert_eq!(gate.check_grants(), Ok(()));
        count(&mut watched, &time(60), SECOND).await;
        let error = gate.check_grants().unwrap_err();
        assert!(matches!(error, NodeError::ClockStepped { .. }), "{error}");
        // Another connection, which shows no step by itself.
        watched.0.begin_clock_watch(Err(None));
        assert!(matches!(gate.check_grants(), Err(NodeError::ClockStepped { .. })));
        tokio::time::advance(LEASE).await;
        assert_eq!(gate.check_grants(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_back_and_a_step_without_the_guard_are_only_logged_and_counted() {
        for (guard, ahead) in [(Some(LEASE), None), (None, Some(60))] {
            #[cfg(feature = "metrics")]
            let counted = crate::telemetry::Counted::begin();
            let mut watched = watched(guard).await;
            watched.0.is_used.store(true, Ordering::Relaxed);
            let reply = ahead.map_or_else(|| time(0).replace("179", "178"), time);
            assert!(count(&mut watched, &reply, READING_INTERVAL + READING_INTERVAL / 2).await > 0);
            assert_eq!(watched.0.gate.check_grants(), Ok(()), "{guard:?}");
            #[cfg(feature = "metrics")]
            {
                let direction = if ahead.is_some() { "forward" } else { "back" };
                let expected = format!("stepped:1 {direction}: 1");
                assert_eq!(counted.events("redlock_clock_steps_total"), [expected]);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_steps_all_the_time_takes_one_line_of_each_kind_per_second() {
        let logs = Logs::collect();
        let watch = stepped(Some(LEASE));
        // Three seconds. One reading in three fails.
        for look in 0..30 {
            let seconds = [1_790_000_000, 1_790_000_060][look % 3 % 2];
            let time = async { Ok::<_, RedisError>(Duration::from_secs(seconds)) };
            let reading = Reading::take(&*watch.settings.node.clock, time).await.unwrap();
            watch.begin_clock_watch(if look % 3 < 2 { Ok(reading) } else { Err(None) });
            tokio::time::advance(SECOND / 10).await;
        }
        let lines = logs.lines();
        let count = |words: &str| {
            let words = ["WARN", "stepped:1", words];
            let is_one = |line: &&String| words.iter().all(|word| line.contains(word));
            lines.iter().filter(is_one).count()
        };
        for words in ["stepped forward", "stepped back", "time of the server is unknown"] {
            assert_eq!(count(words), 3, "{words}: {lines:?}");
        }
    }
}
