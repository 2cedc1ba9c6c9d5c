//! The properties that a server reports about itself.

use std::time::Duration;

use bb8_redis::redis::{Cmd, ErrorKind, FromRedisValue, InfoDict, RedisError};
use futures_util::future::{try_join_all, try_join3};

use super::clock_watch::read_clock;
use crate::clock::Clock;
use crate::error::legible;
use crate::store::kit::wall_clock::Reading;
use crate::store::redis::error::{is_reply, refusal};
use crate::store::redis::link::Link;

/// The properties that a server reports. Each is `None` if the server does not report it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The product and its version.
    pub(super) product: Option<(&'static str, String)>,
    /// The ID of the incarnation. It changes with every start of the server.
    pub(super) run_id: Option<String>,
    /// The time since the start of the server, in whole seconds.
    pub(super) uptime: Option<Duration>,
    /// Whether the server says that it is no part of a cluster.
    pub(super) is_standalone: bool,
    /// The eviction policy of the server for a full memory.
    pub(super) maxmemory_policy: Option<String>,
    pub(super) replication: Option<Replication>,
    /// How long the server accepts writes after it was cut off, see [`LagSetting`].
    pub(super) max_lag: Option<Duration>,
    /// The time on the server's wall clock.
    pub(super) time: Option<Reading>,
    /// Why the time is unknown.
    pub(super) time_refusal: Option<String>,
    /// Why a section of `INFO` is unknown.
    pub(super) info_refusal: Option<String>,
}

/// The replication of a server, as it reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Replication {
    pub(super) is_replica: bool,
    /// The ID of the data set. It changes when the server becomes a replica, and when it becomes a master.
    pub(super) id: Option<String>,
    /// Whether the server refuses writes without replicas (`min-replicas-to-write`).
    pub(super) needs_replicas: bool,
    /// Whether the server was a replica before, so that it was promoted to master.
    pub(super) was_replica: bool,
}

/// The setting of a server that limits how long it accepts writes after it was cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct LagSetting {
    name: &'static str,
    unit: Duration,
    /// The value if the server does not report it: the default of the servers.
    default: Duration,
    /// How much longer than the setting a server may accept writes.
    rounding: Duration,
}

impl LagSetting {
    /// The time since a master has last heard of its replicas.
    pub(super) const REPLICAS: Self = Self {
        name: "min-replicas-max-lag",
        unit: Duration::from_secs(1),
        default: Duration::from_secs(10),
        // The server counts the lag in whole seconds, and checks it once per second.
        rounding: Duration::from_secs(2),
    };

    /// The time since a master of a cluster has last heard of the other masters.
    pub(super) const CLUSTER: Self = Self {
        name: "cluster-node-timeout",
        unit: Duration::from_millis(1),
        default: Duration::from_secs(15),
        rounding: Duration::from_secs(1),
    };

    /// Returns how long a former master may grant locks after the promotion of a server that reports this value.
    pub(super) fn margin(self, reported: Option<Duration>) -> Duration {
        reported.unwrap_or(self.default) + self.rounding
    }
}

/// The sections of `INFO` that identify a server.
const SECTIONS: [&str; 3] = ["server", "memory", "replication"];
/// The fields with the version of a product. The others report the version of Redis that they imitate, too.
const PRODUCTS: [(&str, &str); 4] = [
    ("valkey_version", "Valkey"),
    ("dragonfly_version", "Dragonfly"),
    ("garnet_version", "Garnet"),
    ("redis_version", "Redis"),
];

impl Identity {
    /// Asks a server, in one round trip.
    pub(super) async fn ask(
        link: &Link,
        clock: &dyn Clock,
        lag: Option<LagSetting>,
    ) -> Result<Self, RedisError> {
        let time = async { unless_refused("TIME", read_clock(clock, link).await) };
        // The sections alone: the buffer of the link would keep the length of the whole reply, which is 8 KiB.
        let sections = SECTIONS
            .map(|section| async move { unless_refused("INFO", info(link, section).await) });
        let lag = async {
            match lag {
                Some(lag) => {
                    let lag = unless_refused("CONFIG GET", lag.ask(link).await)?;
                    Ok(lag.ok().flatten())
                }
                None => Ok(None),
            }
        };
        let (time, sections, max_lag) = try_join3(time, try_join_all(sections), lag).await?;
        let mut identity = Self { max_lag, ..Self::default() };
        match time {
            Ok(time) => identity.time = Some(time),
            Err(reason) => identity.time_refusal = Some(reason),
        }
        for section in sections {
            match section {
                Ok(section) => identity.read(&section),
                Err(reason) => identity.info_refusal = Some(reason),
            }
        }
        Ok(identity)
    }

    /// Returns the `run_id` of a server that is a master. Returns `None` if the server is a replica, or does not report it.
    pub(super) async fn ask_master_run_id(link: &Link) -> Result<Option<String>, RedisError> {
        let mut identity = Self::default();
        for section in
            try_join_all(["server", "replication"].map(|section| info(link, section))).await?
        {
            identity.read(&section);
        }
        let is_replica = identity.replication.is_none_or(|replication| replication.is_replica);
        Ok(identity.run_id.filter(|_| !is_replica))
    }

    /// Reads a section of `INFO`.
    fn read(&mut self, info: &InfoDict) {
        let product = |(field, name)| text(info, field).map(|version| (name, version));
        self.product = self.product.take().or_else(|| PRODUCTS.into_iter().find_map(product));
        self.run_id = self.run_id.take().or_else(|| text(info, "run_id"));
        self.uptime =
            self.uptime.or_else(|| info.get("uptime_in_seconds").map(Duration::from_secs));
        // Redis, and Valkey 9.
        let modes = ["redis_mode", "server_mode"].map(|field| text(info, field));
        self.is_standalone |= modes.iter().flatten().any(|mode| mode == "standalone");
        self.maxmemory_policy =
            self.maxmemory_policy.take().or_else(|| text(info, "maxmemory_policy"));
        if info.contains_key(&"role") {
            self.replication = Some(Replication::of(info));
        }
    }
}

impl Replication {
    /// Asks a server for its replication alone.
    pub(super) async fn ask(link: &Link) -> Result<Self, RedisError> {
        Ok(Self::of(&info(link, "replication").await?))
    }

    fn of(info: &InfoDict) -> Self {
        let former: String = info.get("master_replid2").unwrap_or_default();
        Self {
            is_replica: info.get("role").is_some_and(|role: String| role != "master"),
            id: text(info, "master_replid"),
            // Only a server that needs replicas counts them.
            needs_replicas: info.contains_key(&"min_slaves_good_slaves"),
            // Zeros on a server that was never a replica.
            was_replica: former.contains(|digit| digit != '0'),
        }
    }

    /// Returns the replication ID of a master that was promoted.
    pub(super) fn promoted_id(&self) -> Option<&str> {
        self.id.as_deref().filter(|_| self.was_replica)
    }
}

impl LagSetting {
    async fn ask(self, link: &Link) -> Result<Option<Duration>, RedisError> {
        let mut config = Cmd::new();
        config.arg("CONFIG").arg("GET").arg(self.name);
        let pairs: Vec<(String, u32)> = Vec::from_redis_value(link.send(&config).await?)?;
        Ok(pairs.first().map(|(_, count)| self.unit * *count))
    }
}

async fn info(link: &Link, section: &str) -> Result<InfoDict, RedisError> {
    let mut info = Cmd::new();
    info.arg("INFO").arg(section);
    Ok(InfoDict::from_redis_value(link.send(&info).await?)?)
}

/// Returns a field that is logged or kept, which is cut if it is long.
fn text(info: &InfoDict, name: &str) -> Option<String> {
    info.get(name).map(|text: String| legible(&text))
}

/// Returns the error as text if the server refuses the command or its reply is not understood. The caller then skips
/// the checks that need the reply.
fn unless_refused<T>(
    command: &str,
    reply: Result<T, RedisError>,
) -> Result<Result<T, String>, RedisError> {
    match reply {
        Ok(reply) => Ok(Ok(reply)),
        Err(error) if is_reply(&error) || error.kind() == ErrorKind::UnexpectedReturnType => {
            Ok(Err(refusal(command, &error)))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(info: &str) -> Identity {
        let mut identity = Identity::default();
        identity.read(&InfoDict::new(info));
        identity
    }

    #[test]
    fn the_identity_is_read_from_info() {
        let identity = identity(
            "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:42\r\n\r\n\
             # Memory\r\nmaxmemory_policy:allkeys-lru\r\n",
        );
        assert_eq!(identity.product, Some(("Redis", "7.0.15".to_owned())));
        assert_eq!(identity.run_id.as_deref(), Some("abc"));
        assert_eq!(identity.uptime, Some(Duration::from_secs(42)));
        assert_eq!(identity.maxmemory_policy.as_deref(), Some("allkeys-lru"));
    }

    #[test]
    fn a_product_is_known_by_its_own_version() {
        let valkey =
            identity("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n");
        assert_eq!(valkey.product, Some(("Valkey", "9.1.2".to_owned())));
        assert!(!valkey.is_standalone);
    }

    #[test]
    fn a_server_says_whether_it_is_a_part_of_a_cluster() {
        for (field, expected) in [
            ("redis_mode:standalone", true),
            ("server_mode:standalone", true),
            ("redis_mode:cluster", false),
            ("server_mode:cluster", false),
            ("redis_mode:sentinel", false),
        ] {
            assert_eq!(identity(&format!("{field}\r\n")).is_standalone, expected, "{field}");
        }
    }

    #[test]
    fn long_texts_of_a_server_are_cut() {
        let long = "x\u{1b}".repeat(50_000);
        let identity = identity(&format!(
            "run_id:{long}\r\nmaxmemory_policy:{long}\r\nrole:master\r\nmaster_replid:{long}\r\n"
        ));
        let texts = [identity.run_id, identity.maxmemory_policy, identity.replication.unwrap().id];
        for text in texts.map(Option::unwrap) {
            assert!(text.len() < 1024 && !text.contains('\u{1b}'), "{}", text.len());
        }
    }

    #[test]
    fn the_replication_is_read_from_info() {
        let replication = |info: &str| identity(info).replication.unwrap();
        let master = replication(
            "# Replication\r\nrole:master\r\nmin_slaves_good_slaves:1\r\nmaster_replid:abc\r\n",
        );
        assert!(!master.is_replica && master.needs_replicas);
        assert_eq!(master.id.as_deref(), Some("abc"));
        let replica = replication("# Replication\r\nrole:slave\r\nmaster_replid:abc\r\n");
        assert!(replica.is_replica && !replica.needs_replicas);
        let master = |former| {
            replication(&format!("role:master\r\nmaster_replid:abc\r\nmaster_replid2:{former}\r\n"))
        };
        assert_eq!(master("def0").promoted_id(), Some("abc"));
        assert_eq!(master("0000").promoted_id(), None);
    }

    #[test]
    fn a_check_is_skipped_if_the_server_refuses_the_command() {
        let refused = |error: RedisError| unless_refused::<()>("TIME", Err(error));
        for (text, reason) in [
            ("NOPERM no 'time'", "TIME is denied: NOPERM no 'time'"),
            ("ERR unknown command", "the server does not execute TIME: ERR unknown command"),
            // The words of proxies, managed services and miniredis 2.40: no server of Redis begins an error with them.
            ("unsupported command", "the server does not execute TIME: unsupported command"),
            ("DENIED by policy", "the server does not execute TIME: DENIED by policy"),
            (
                "section (server) is not supported",
                "the server does not execute TIME: section (server) is not supported",
            ),
        ] {
            let reply = bb8_redis::redis::parse_redis_value(format!("-{text}\r\n").as_bytes());
            let error = reply.unwrap().extract_error().unwrap_err();
            assert_eq!(refused(error), Ok(Err(reason.to_owned())));
        }
        let other = refused((ErrorKind::UnexpectedReturnType, "no time").into()).unwrap();
        assert!(other.unwrap_err().starts_with("the reply to TIME is not understood: no time"));
        assert!(refused((ErrorKind::Io, "no").into()).is_err(), "the connection broke");
        assert_eq!(unless_refused("TIME", Ok(())), Ok(Ok(())));
    }
}
