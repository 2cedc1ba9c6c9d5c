//! Settings from environment variables, `Debug`, and the manager that they make.

use std::time::Duration;

use super::LockManagerConfig;
use super::settings::SETTINGS;
use crate::error::{ConfigError, ConnectError};
use crate::{Dialect, LockManager, MemoryNode};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn from_env(variables: &[(&str, &str)]) -> Result<LockManagerConfig, ConfigError> {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    LockManagerConfig::from_variables("LOCKS", variables)
}

pub(super) fn from_variable(name: &str, value: &str) -> Result<LockManagerConfig, ConfigError> {
    from_env(&[(name, value)])
}

fn message(name: &str, value: &str) -> String {
    from_variable(name, value).expect_err(value).to_string()
}

#[test]
fn every_setting_is_read_from_its_variable() {
    let config = from_env(&[
        ("LOCKS_URLS", "memory:"),
        ("LOCKS_PREFIX", "shop:"),
        ("LOCKS_OWNER_LABEL", "shop-7f9c"),
        ("LOCKS_DIALECT", "redisson"),
        ("LOCKS_EXPIRE", "30s"),
        ("LOCKS_NODE_TIMEOUT", "50ms"),
        ("LOCKS_CONNECT_TIMEOUT", "2"),
        ("LOCKS_MAX_WAITERS", "17"),
        ("LOCKS_BODY_BUFFERS", "18"),
        ("LOCKS_OUTAGE_GRACE", "0"),
        ("LOCKS_RESTART_GUARD", "1m 30s"),
        ("LOCKS_FAILOVER_MARGIN", "12s"),
        ("LOCKS_CLUSTER_REFRESH", "3"),
        ("LOCKS_LOCK_ORDER", " false "),
        ("LOCKS_TLS_CA", "/ca.pem"),
        ("LOCKS_TLS_CERT", " /cert.pem\n"),
        ("LOCKS_TLS_KEY", "/key.pem"),
        ("PATH", "/bin"),
        ("LOCKSMITH_EXPIRE", "soon"),
        ("LOCKS", "soon"),
    ]);
    let expected = LockManagerConfig {
        urls: vec!["memory:".into()],
        prefix: Some("shop:".to_owned()),
        owner_label: Some("shop-7f9c".to_owned()),
        dialect: Some(Dialect::Redisson),
        expire: Some(30 * SECOND),
        node_timeout: Some(Duration::from_millis(50)),
        connect_timeout: Some(2 * SECOND),
        max_waiters: Some(17),
        body_buffers: Some(18),
        outage_grace: Some(Duration::ZERO),
        restart_guard: Some(90 * SECOND),
        failover_margin: Some(12 * SECOND),
        cluster_refresh: Some(3 * SECOND),
        lock_order: Some(false),
        tls_ca: Some("/ca.pem".into()),
        tls_cert: Some("/cert.pem".into()),
        tls_key: Some("/key.pem".into()),
    };
    assert_eq!(config, Ok(expected));
    assert_eq!(from_env(&[]), Ok(LockManagerConfig::new()));
    assert_eq!(from_variable("LOCKS_DIALECT", "plain").unwrap().dialect, Some(Dialect::Plain));
}

/// `docker compose` sets a variable that has no value on the host to an empty text.
#[test]
fn an_empty_or_blank_variable_counts_as_unset() {
    for setting in SETTINGS {
        for value in ["", "  ", "\n"] {
            let variable = format!("LOCKS_{}", setting.name.to_ascii_uppercase());
            assert_eq!(from_variable(&variable, value), Ok(LockManagerConfig::new()), "{variable}");
        }
    }
}

#[test]
fn white_space_around_a_value_is_ignored_except_in_the_prefix() {
    assert_eq!(from_variable("LOCKS_EXPIRE", " 30 \n").unwrap().expire, Some(30 * SECOND));
    assert_eq!(from_variable("LOCKS_MAX_WAITERS", " 3 ").unwrap().max_waiters, Some(3));
    assert_eq!(from_variable("LOCKS_DIALECT", "plain ").unwrap().dialect, Some(Dialect::Plain));
    assert_eq!(from_variable("LOCKS_URLS", " memory: ").unwrap().urls, ["memory:".into()]);
    assert_eq!(from_variable("LOCKS_PREFIX", " a ").unwrap().prefix.as_deref(), Some(" a "));
}

#[test]
fn an_unknown_variable_is_an_error_with_the_known_ones() {
    assert_eq!(
        message("LOCKS_EXPIRES", "s3cret"),
        "the environment variable LOCKS_EXPIRES is unknown; known are \
         LOCKS_URLS, LOCKS_PREFIX, LOCKS_OWNER_LABEL, LOCKS_DIALECT, LOCKS_EXPIRE, LOCKS_NODE_TIMEOUT, \
         LOCKS_CONNECT_TIMEOUT, LOCKS_MAX_WAITERS, LOCKS_BODY_BUFFERS, LOCKS_OUTAGE_GRACE, LOCKS_RESTART_GUARD, \
         LOCKS_FAILOVER_MARGIN, LOCKS_CLUSTER_REFRESH, LOCKS_LOCK_ORDER, LOCKS_TLS_CA, LOCKS_TLS_CERT, LOCKS_TLS_KEY; if \
         the service has settings with this prefix, give its locks a longer one"
    );
    let unknown = message("LOCKS_TTL", "");
    assert!(
        unknown.starts_with("the environment variable LOCKS_TTL is unknown; known are LOCKS_URLS")
    );
    for name in ["LOCKS_", "LOCKS_expire", "LOCKS_EXPIRE_", "LOCKS__EXPIRE"] {
        let error = from_variable(name, "5").unwrap_err();
        assert!(matches!(error, ConfigError::UnknownVariable { .. }), "{name}: {error}");
    }
}

/// A container could not start beside a service called `locks` or `locks-redis`.
#[test]
fn variables_that_kubernetes_sets_for_a_service_are_ignored() {
    for service in ["LOCKS", "LOCKS_REDIS"] {
        for name in [
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_CLIENT",
            "PORT",
            "PORT_6379_TCP",
            "PORT_6379_TCP_PROTO",
            "PORT_6379_TCP_PORT",
            "PORT_6379_TCP_ADDR",
            "PORT_53_UDP",
        ] {
            let name = format!("{service}_{name}");
            assert_eq!(from_variable(&name, "6379"), Ok(LockManagerConfig::new()), "{name}");
        }
    }
    for name in ["LOCKS_EXPORT", "LOCKS_PORTS", "LOCKS_SERVICES", "LOCKS_6379_TCP", "LOCKS_HOST"] {
        let error = from_variable(name, "6379").unwrap_err();
        assert!(matches!(error, ConfigError::UnknownVariable { .. }), "{name}: {error}");
    }
}

/// A URL in the wrong variable may contain a password.
#[test]
fn the_error_of_a_wrong_value_does_not_show_a_url() {
    let (url, long) =
        ("redis://:s3cret@a".to_owned(), format!("redis://:{}s3cret@a", "a".repeat(100)));
    for setting in SETTINGS.iter().filter(|setting| setting.name != "urls") {
        let name = format!("LOCKS_{}", setting.name.to_ascii_uppercase());
        for value in [&url, &long] {
            let Err(error) = from_variable(&name, value) else { continue };
            let text = format!("{error} {error:?}");
            assert!(!text.contains("s3cret") && text.contains("a URL"), "{text}");
        }
    }
}

#[test]
fn a_wrong_value_is_an_error_with_the_variable_the_value_and_the_allowed_values() {
    let time = "a time such as \"500ms\" or \"5s\", or a whole number of seconds";
    for (name, value, expected) in [
        ("EXPIRE", "soon", format!("expire is \"soon\", but must be {time}")),
        ("EXPIRE", "-5", format!("expire is \"-5\", but must be {time}")),
        ("EXPIRE", "5ms", "expire is 5ms, but must be from 10 ms to 7 days".to_owned()),
        ("NODE_TIMEOUT", "2m", "node_timeout is 120s, but must be from 1 ms to 60 s".to_owned()),
        (
            "CONNECT_TIMEOUT",
            "0",
            "connect_timeout is 0ns, but must be from 1 ms to 60 s".to_owned(),
        ),
        ("OUTAGE_GRACE", "61", "outage_grace is 61s, but must be from 0 to 60 s".to_owned()),
        (
            "RESTART_GUARD",
            "8d",
            "restart_guard is 691200s, but must be from 10 ms to 7 days".to_owned(),
        ),
        ("FAILOVER_MARGIN", "61", "failover_margin is 61s, but must be from 0 to 60 s".to_owned()),
        (
            "CLUSTER_REFRESH",
            "99ms",
            "cluster_refresh is 99ms, but must be from 100 ms to 60 s".to_owned(),
        ),
        ("LOCK_ORDER", "off", "lock_order is \"off\", but must be true or false".to_owned()),
        ("MAX_WAITERS", "0", "max_waiters is 0, but must be at least 1".to_owned()),
        ("BODY_BUFFERS", "0", "body_buffers is 0, but must be at least 1".to_owned()),
        (
            "BODY_BUFFERS",
            "64 MiB",
            "body_buffers is \"64 MiB\", but must be a whole number of bytes".to_owned(),
        ),
        ("MAX_WAITERS", "many", "max_waiters is \"many\", but must be a whole number".to_owned()),
        ("DIALECT", "redison", "dialect is \"redison\", but must be plain or redisson".to_owned()),
        (
            "PREFIX",
            "a\nb",
            "prefix is \"a\\nb\", but must be at most 100 bytes without control characters"
                .to_owned(),
        ),
    ] {
        let name = format!("LOCKS_{name}");
        let expected = format!("the environment variable {name} is invalid: {expected}");
        assert_eq!(message(&name, value), expected);
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_unicode_is_an_error() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    let wrong = |text: &[u8]| OsString::from_vec(text.to_vec());
    let error = |name: &[u8], value: &[u8]| {
        LockManagerConfig::from_variables("LOCKS", [(wrong(name), wrong(value))]).unwrap_err()
    };
    let text = error(b"LOCKS_EXPIRE", b"5\xff").to_string();
    assert_eq!(text, "the value of the environment variable LOCKS_EXPIRE is not Unicode");
    let unknown = error(b"LOCKS_EXPIRE\xff", b"5");
    assert!(matches!(unknown, ConfigError::UnknownVariable { .. }), "{unknown}");
    let others = [(wrong(b"\xff"), wrong(b"\xff"))];
    assert_eq!(LockManagerConfig::from_variables("LOCKS", others), Ok(LockManagerConfig::new()));
}

#[test]
fn an_empty_prefix_is_an_error() {
    assert_eq!(LockManagerConfig::from_variables("", []), Err(ConfigError::EmptyPrefix));
    assert_eq!(LockManagerConfig::from_env(""), Err(ConfigError::EmptyPrefix));
}

#[cfg(feature = "redis")]
#[test]
fn debug_shows_the_names_of_the_nodes_without_passwords() {
    let mut config = from_env(&[
        ("LOCKS_URLS", "redis://app:s3cret@10.0.0.1:7000/2,unix:///run/redis.sock?pass=s3cret"),
        ("LOCKS_EXPIRE", "30s"),
    ])
    .unwrap();
    config.urls.extend(["memory:", "redis://:s3cret@h/x", "s3cret"].map(crate::NodeUrl::from));
    assert_eq!(
        format!("{config:?}"),
        "LockManagerConfig { urls: [10.0.0.1:7000/2, /run/redis.sock, memory:, (invalid), (invalid)], prefix: None, owner_label: None, dialect: None, expire: Some(30s), \
         node_timeout: None, connect_timeout: None, max_waiters: None, body_buffers: None, outage_grace: None, \
         restart_guard: None, failover_margin: None, cluster_refresh: None, lock_order: None, tls_ca: None, tls_cert: None, tls_key: None }"
    );
    assert!(!format!("{config:#?}").contains("s3cret"));
    config.urls = vec!["redis+sentinel://:s3cret@h/shop?sentinel_password=s3cret".into()];
    let debug = format!("{config:?}");
    assert!(debug.contains("[shop@h:26379]") && !debug.contains("s3cret"), "{debug}");
}

#[test]
fn the_builder_has_every_setting() {
    let defaults = format!("{:?}", LockManager::builder());
    assert_eq!(format!("{:?}", LockManagerConfig::new().builder()), defaults);
    let config = LockManagerConfig {
        urls: vec!["memory:".into(), "memory:".into()],
        prefix: Some("shop:".to_owned()),
        owner_label: Some("shop-7f9c".to_owned()),
        dialect: Some(Dialect::Redisson),
        expire: Some(11 * SECOND),
        node_timeout: Some(12 * SECOND),
        connect_timeout: Some(13 * SECOND),
        max_waiters: Some(14),
        body_buffers: Some(18),
        outage_grace: Some(15 * SECOND),
        restart_guard: Some(16 * SECOND),
        failover_margin: Some(17 * SECOND),
        cluster_refresh: Some(17 * SECOND),
        lock_order: Some(false),
        tls_ca: Some("/ca.pem".into()),
        tls_cert: Some("/cert.pem".into()),
        tls_key: Some("/key.pem".into()),
    };
    assert_eq!(
        format!("{:?}", config.builder()),
        "LockManagerBuilder { nodes: [Url(memory:), Url(memory:)], config: LockManagerConfig { urls: [], \
         prefix: Some(\"shop:\"), owner_label: Some(\"shop-7f9c\"), dialect: Some(Redisson), expire: Some(11s), node_timeout: Some(12s), \
         connect_timeout: Some(13s), max_waiters: Some(14), body_buffers: Some(18), outage_grace: Some(15s), restart_guard: Some(16s), \
         failover_margin: Some(17s), cluster_refresh: Some(17s), lock_order: Some(false), tls_ca: None, tls_cert: None, tls_key: None }, \
         tls: Some(TlsOptions { ca: Some(\"/ca.pem\"), cert: Some(\"/cert.pem\"), key: Some(\"/key.pem\"), \
         insecure: None }), clock: SystemClock, .. }"
    );
}

#[tokio::test]
async fn settings_are_checked_by_connect() {
    let mut config = LockManagerConfig::new();
    let error = config.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::NoNodes), "{error}");
    config.builder().memory_node(&MemoryNode::new()).connect().await.unwrap();

    config.urls.push("memory:".into());
    config.restart_guard = Some(SECOND);
    let error = config.connect().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "expire is 30s by default, but must be at most 1s, the longest lease of the restart_guard"
    );
    config.restart_guard = None;
    config.failover_margin = Some(SECOND);
    let error = config.connect().await.unwrap_err().to_string();
    assert_eq!(error, "failover_margin is 1s, but must be set together with restart_guard");
}

#[tokio::test]
async fn a_label_is_checked_by_connect_and_off_is_none() {
    let connect = async |label: &str| {
        LockManager::builder().memory_node(&MemoryNode::new()).owner_label(label).connect().await
    };
    let too_long = "x".repeat(65);
    for label in ["", "a b", "a\n", "\u{e9}", &too_long] {
        let error = connect(label).await.unwrap_err();
        let ConnectError::InvalidOption(error) = error else { panic!("{error:?}") };
        assert_eq!(error.option(), "owner_label");
        let range = "must be 1 to 64 printable ASCII characters without blanks (! to ~)";
        let text = format!("owner_label is {label:?}, but {range}");
        assert_eq!(error.to_string(), text);
    }
    let label = |locks: LockManager| locks.owner_label().map(ToString::to_string);
    assert_eq!(label(connect("#@/").await.unwrap()).as_deref(), Some("#@/"));
    assert_eq!(label(connect("off").await.unwrap()), None);
    let default = label(LockManager::in_memory()).unwrap();
    assert!(default.ends_with(&format!(":{}", std::process::id())), "{default}");
    assert!(message("LOCKS_OWNER_LABEL", "a b").contains("owner_label is \"a b\""));
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn the_files_of_tls_name_the_feature_that_they_need() {
    let mut config = from_env(&[("LOCKS_TLS_CA", "/ca.pem")]).unwrap();
    config.urls.push("memory:".into());
    let error = config.connect().await.unwrap_err().to_string();
    assert!(error.contains("`tls`"), "{error}");
}
