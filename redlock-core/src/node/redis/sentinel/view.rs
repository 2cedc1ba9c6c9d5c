//! The reply of one sentinel about the master.

use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::time::Instant;

use crate::node::redis::link::Link;
use crate::node::redis::url::HostPort;

/// The master, as one sentinel sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MasterView {
    pub(crate) address: HostPort,
    /// The configuration epoch: it grows with each failover.
    pub(crate) epoch: u64,
    /// The time since which this sentinel knows the server as a master. It is too early if the sentinel has not noticed
    /// that another server was the master in between, or if its wall clock was stepped forward.
    pub(crate) since: Instant,
}

impl MasterView {
    /// Asks a sentinel for the master of a service.
    ///
    /// Two commands are needed. Only `SENTINEL MASTER` has the epoch, and since when the server reports that it is a
    /// master. But the sentinel that leads a failover names the former master in that reply until all replicas follow
    /// the new one, and names the new one only in the reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    pub(crate) async fn ask(sentinel: &Link, service: &str) -> Result<Self, RedisError> {
        let master = ask(sentinel, "MASTER", service).await?;
        let asked = Instant::now();
        let address = ask(sentinel, "GET-MASTER-ADDR-BY-NAME", service).await?;
        Self::read(&master, &address, asked).ok_or_else(|| {
            (ErrorKind::UnexpectedReturnType, "unexpected reply of a sentinel").into()
        })
    }

    fn read(master: &Value, address: &Value, asked: Instant) -> Option<Self> {
        let fields = pairs(master)?;
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let Value::Array(parts) = address else { return None };
        let [host, port] = &parts[..] else { return None };
        let address = HostPort { host: text(host)?, port: text(port)?.parse().ok()? };
        let epoch = field("config-epoch")?.parse().ok()?;
        // During a failover, and between the two replies, the fields may be those of another server.
        let is_same = field("ip") == Some(&address.host)
            && field("port").is_some_and(|port| *port == address.port.to_string())
            && field("role-reported").is_some_and(|role| role == "master");
        let age = if is_same { field("role-reported-time")?.parse().ok()? } else { 0 };
        let since = asked.checked_sub(Duration::from_millis(age)).unwrap_or(asked);
        Some(Self { address, epoch, since })
    }
}

async fn ask(sentinel: &Link, command: &str, service: &str) -> Result<Value, RedisError> {
    let mut question = Cmd::new();
    question.arg("SENTINEL").arg(command).arg(service);
    sentinel.send(&question).await
}

/// Returns the fields of a reply: a map (RESP3), or an array of names and values.
fn pairs(reply: &Value) -> Option<Vec<(String, String)>> {
    match reply {
        Value::Map(pairs) => {
            pairs.iter().map(|(name, value)| Some((text(name)?, text(value)?))).collect()
        }
        Value::Array(texts) => {
            texts.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn texts(texts: &[&str]) -> Value {
        let texts = texts.iter().map(|text| Value::BulkString(text.as_bytes().to_vec()));
        Value::Array(texts.collect())
    }

    fn master(port: &str, role: &str) -> Value {
        texts(&[
            "ip",
            "10.0.0.1",
            "port",
            port,
            "role-reported",
            role,
            "role-reported-time",
            "60000",
            "config-epoch",
            "3",
        ])
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_a_master_counts_only_if_both_replies_name_it() {
        tokio::time::advance(2 * MINUTE).await;
        let now = Instant::now();
        let since = |master: &Value, port: &str| {
            let view = MasterView::read(master, &texts(&["10.0.0.1", port]), now).unwrap();
            assert_eq!((view.epoch, view.address.to_string()), (3, format!("10.0.0.1:{port}")));
            view.since
        };
        assert_eq!(since(&master("6379", "master"), "6379"), now - MINUTE);
        // The sentinel leads a failover: the epoch is the new one, the rest describes the former master.
        assert_eq!(since(&master("6379", "master"), "6380"), now);
        assert_eq!(since(&master("6379", "slave"), "6379"), now, "it was demoted");
    }

    #[tokio::test]
    async fn an_unexpected_reply_is_no_view() {
        let address = texts(&["10.0.0.1", "6379"]);
        let now = Instant::now();
        for (master, address) in [
            (Value::Nil, address.clone()),
            (master("6379", "master"), Value::Nil),
            (master("6379", "master"), texts(&["10.0.0.1"])),
            (master("6379", "master"), texts(&["10.0.0.1", "x"])),
            (texts(&["ip", "10.0.0.1"]), address),
        ] {
            assert_eq!(MasterView::read(&master, &address, now), None);
        }
    }
}
