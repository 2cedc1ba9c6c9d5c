//! Settings in TOML, JSON and RON.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;

use super::settings::SETTINGS;
use super::{LockManagerConfig, NodeUrl};
use crate::Dialect;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
struct Service {
    #[expect(dead_code, reason = "to show it in an error")]
    listen: Option<String>,
    locks: LockManagerConfig,
}

fn all() -> LockManagerConfig {
    LockManagerConfig {
        urls: ["redis://:s3cret@10.0.0.1", "redis://10.0.0.2"].map(NodeUrl::from).to_vec(),
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
    }
}

/// Returns the configuration after it was written and read in each format.
fn copies(config: &LockManagerConfig) -> [LockManagerConfig; 5] {
    let named = ron::ser::PrettyConfig::new().struct_names(true);
    [
        serde_json::from_str(&serde_json::to_string(config).unwrap()).unwrap(),
        serde_json::from_value(serde_json::to_value(config).unwrap()).unwrap(),
        toml::from_str(&toml::to_string(config).unwrap()).unwrap(),
        ron::from_str(&ron::to_string(config).unwrap()).unwrap(),
        ron::from_str(&ron::ser::to_string_pretty(config, named).unwrap()).unwrap(),
    ]
}

#[test]
fn a_configuration_is_written_without_the_settings_that_have_no_value() {
    assert_eq!(
        toml::to_string(&all()).unwrap(),
        r#"urls = ["redis://:s3cret@10.0.0.1", "redis://10.0.0.2"]
prefix = "shop:"
owner_label = "shop-7f9c"
dialect = "redisson"
expire = "30s"
node_timeout = "50ms"
connect_timeout = "2s"
max_waiters = 17
body_buffers = 18
outage_grace = "0s"
restart_guard = "90s"
failover_margin = "12s"
cluster_refresh = "3s"
lock_order = false
tls_ca = "/ca.pem"
tls_cert = "/cert.pem"
tls_key = "/key.pem"
"#
    );
    assert_eq!(serde_json::to_string(&LockManagerConfig::new()).unwrap(), "{}");
    assert_eq!(toml::to_string(&LockManagerConfig::new()).unwrap(), "");
}

#[test]
fn every_setting_that_can_be_read_is_written() {
    let written = serde_json::to_value(all()).unwrap();
    let written: BTreeSet<_> = written.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(written, SETTINGS.iter().map(|setting| setting.name).collect());
}

fn times(millis: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Option<Duration>> {
    let time = prop_oneof![
        Just(Duration::from_millis(*millis.start())),
        Just(Duration::from_millis(*millis.end())),
        millis.prop_map(Duration::from_millis),
    ];
    proptest::option::of(time)
}

#[test]
fn a_written_configuration_is_read_back_unchanged() {
    const LONGEST: u64 = 7 * 24 * 60 * 60 * 1000;
    for config in [LockManagerConfig::new(), all()] {
        assert_eq!(copies(&config), [(); 5].map(|()| config.clone()));
    }
    let dialects =
        prop_oneof![Just(None), Just(Some(Dialect::Plain)), Just(Some(Dialect::Redisson))];
    let runs = ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() };
    proptest!(runs, |(
        urls in proptest::collection::vec(".{0,20}", 0..4),
        prefix in proptest::option::of("[^\\p{Cc}]{0,25}"),
        dialect in dialects,
        [expire, restart_guard] in [times(10..=LONGEST), times(10..=LONGEST)],
        [node_timeout, connect_timeout] in [times(1..=60_000), times(1..=60_000)],
        [outage_grace, failover_margin] in [times(0..=60_000), times(0..=60_000)],
        cluster_refresh in times(100..=60_000),
        lock_order in proptest::option::of(proptest::bool::ANY),
        owner_label in proptest::option::of("[!-~]{1,64}"),
        [tls_ca, tls_cert, tls_key] in [(); 3].map(|()| proptest::option::of("[a-z/.]{1,9}")),
        [max_waiters, body_buffers] in [(); 2].map(|()| {
            proptest::option::of(1..=usize::try_from(i64::MAX).unwrap_or(usize::MAX))
        }),
    )| {
        let config = LockManagerConfig {
            urls: urls.into_iter().map(NodeUrl::from).collect(), prefix, owner_label, dialect, expire, node_timeout, connect_timeout, max_waiters,
            body_buffers,
            outage_grace, restart_guard, failover_margin, cluster_refresh, lock_order,
            tls_ca: tls_ca.map(Into::into), tls_cert: tls_cert.map(Into::into),
            tls_key: tls_key.map(Into::into),
        };
        for copy in copies(&config) {
            prop_assert!(copy == config, "{:?}", config);
        }
    });
}

#[test]
fn the_same_settings_are_read_from_each_format() {
    let mut expected = LockManagerConfig::new();
    expected.urls = vec!["redis://a".into(), "redis://b".into()];
    expected.expire = Some(30 * SECOND);
    expected.max_waiters = Some(17);
    expected.dialect = Some(Dialect::Plain);

    for text in [
        "urls = ['redis://a', 'redis://b']\nexpire = '30s'\nmax_waiters = 17\ndialect = 'plain'",
        "urls = 'redis://a,redis://b'\nexpire = 30\nmax_waiters = '17'\ndialect = 'plain'",
    ] {
        assert_eq!(toml::from_str::<LockManagerConfig>(text).unwrap(), expected, "{text}");
    }
    let json = r#"{"urls": ["redis://a", "redis://b"], "expire": "30", "prefix": null,
        "max_waiters": 17, "dialect": "plain"}"#;
    assert_eq!(serde_json::from_str::<LockManagerConfig>(json).unwrap(), expected);
    for text in [
        "(urls: [\"redis://a\", \"redis://b\"], expire: Some(30), max_waiters: Some(17), dialect: Some(\"plain\"))",
        "LockManagerConfig(urls: Some(\"redis://a,redis://b\"), expire: Some(\"30s\"), max_waiters: Some(17), dialect: Some(\"plain\"))",
        "#![enable(implicit_some)] (urls: [\"redis://a\", \"redis://b\"], expire: 30, max_waiters: 17, dialect: \"plain\")",
    ] {
        assert_eq!(ron::from_str::<LockManagerConfig>(text).unwrap(), expected, "{text}");
    }
}

#[test]
fn nothing_and_null_are_a_configuration_without_values() {
    for text in ["{}", "null", r#"{"urls": null, "expire": null, "dialect": null}"#] {
        let config = serde_json::from_str::<LockManagerConfig>(text).unwrap();
        assert_eq!(config, LockManagerConfig::new(), "{text}");
    }
    for text in ["()", "LockManagerConfig", "{}"] {
        let config = ron::from_str::<LockManagerConfig>(text).unwrap();
        assert_eq!(config, LockManagerConfig::new(), "{text}");
    }
}

#[test]
fn a_mistake_in_toml_names_its_field_and_has_the_line_of_its_table() {
    let time = "a time such as \"500ms\" or \"5s\", or a whole number of seconds";
    for (line, expected) in [
        ("expires = '30s'", "unknown field `expires`, expected one of `urls`, `prefix`"),
        ("expire = '5ms'", "expire is 5ms, but must be from 10 ms to 7 days"),
        ("expire = 'soon'", &format!("expire is \"soon\", but must be {time}")),
        ("expire = -5", &format!("expire is \"-5\", but must be {time}")),
        ("expire = 1.5", &format!("expire must be {time}")),
        ("node_timeout = '2m'", "node_timeout is 120s, but must be from 1 ms to 60 s"),
        ("connect_timeout = 0", "connect_timeout is 0ns, but must be from 1 ms to 60 s"),
        ("outage_grace = '61s'", "outage_grace is 61s, but must be from 0 to 60 s"),
        ("restart_guard = '8d'", "restart_guard is 691200s, but must be from 10 ms to 7 days"),
        ("max_waiters = 0", "max_waiters is 0, but must be at least 1"),
        ("max_waiters = 'many'", "max_waiters is \"many\", but must be a whole number"),
        ("max_waiters = -1", "max_waiters is \"-1\", but must be a whole number"),
        ("prefix = \"a\\nb\"", "prefix is \"a\\nb\", but must be at most 100 bytes"),
        ("prefix = true", "prefix must be a text"),
        ("tls_ca = ['/ca.pem']", "tls_ca must be the path of a file"),
        ("dialect = 'redison'", "dialect is \"redison\", but must be plain or redisson"),
    ] {
        let text = format!("listen = ':80'\n[locks]\nurls = ['redis://a']\n{line}\n");
        let error = toml::from_str::<Service>(&text).unwrap_err().to_string();
        assert!(error.contains("at line 2, column 1\n"), "{line}: {error}");
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn a_mistake_in_json_and_in_ron_has_its_line() {
    for (fields, expected) in [
        (r#""expires": "30s""#, "unknown field `expires`"),
        (r#""expire": "5ms""#, "expire is 5ms, but must be from 10 ms to 7 days"),
        (r#""tls": true"#, "unknown field `tls`, expected one of `urls`"),
        (r#""expire": 5, "expire": 6"#, "duplicate field `expire`"),
        (r#""urls": 5"#, "urls must be a list of URLs, or a text"),
    ] {
        let json = format!("{{\"locks\": {{\n{fields}}}}}");
        let error = serde_json::from_str::<Service>(&json).unwrap_err();
        assert!(error.to_string().contains(expected), "{fields}: {error}");
        assert_eq!(error.line(), 2, "{fields}: {error}");
    }
    for (fields, expected) in [
        ("expires: 30", "unknown field `expires`"),
        ("expire: \"5ms\"", "expire is 5ms, but must be from 10 ms to 7 days"),
        ("tls: true", "`tls`, expected one of `urls`"),
        ("expire: 5, expire: 6", "duplicate field named `expire`"),
        ("urls: 5", "urls must be a list of URLs, or a text"),
    ] {
        let ron = format!("#![enable(implicit_some)] (\n{fields})");
        let error = ron::from_str::<LockManagerConfig>(&ron).unwrap_err();
        assert!(error.to_string().contains(expected), "{fields}: {error}");
        assert_eq!(error.span.start.line, 2, "{fields}: {error}");
    }
    let error = serde_json::from_str::<LockManagerConfig>("5").unwrap_err().to_string();
    assert!(error.contains("expected the settings of a lock manager"), "{error}");
}

/// The crate `toml` prints the line of a mistake.
#[test]
fn a_mistake_beside_urls_does_not_show_them() {
    for (line, expected) in [
        ("url = 'redis://:s3cret@a'", "unknown field `url`, expected one of"),
        ("servers = ['redis://:s3cret@a']", "unknown field `servers`, expected one of"),
        ("urls = ['redis://:s3cret@a', 5]", "urls must be a list of URLs, or a text"),
        ("urls = [['redis://:s3cret@a']]", "urls must be a list of URLs, or a text"),
        ("urls = { a = 'redis://:s3cret@a' }", "urls must be a list of URLs, or a text"),
        ("dialect = 'redis://:s3cret@a'", "dialect is a URL, but must be plain or redisson"),
        ("max_waiters = 'unix:/a?pass=s3cret'", "max_waiters is a URL, but must be a whole number"),
    ] {
        let text = format!("listen = ':80'\n\n[locks]\n{line}\n");
        let error = toml::from_str::<Service>(&text).unwrap_err();
        assert!(!format!("{error}").contains("s3cret"), "{error}");
        assert!(error.to_string().contains("at line 3, column 1\n"), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        let text = format!("expire = 5\n{line}\n");
        let error = toml::from_str::<LockManagerConfig>(&text).unwrap_err();
        assert!(!format!("{error}").contains("s3cret"), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// Otherwise the error of `toml` would contain the URL.
#[test]
fn a_wrong_url_is_read_and_is_an_error_of_connect() {
    let config: Service = toml::from_str("locks = { urls = ['http://:s3cret@a'] }").unwrap();
    assert_eq!(config.locks.urls, ["http://:s3cret@a".into()]);
}
