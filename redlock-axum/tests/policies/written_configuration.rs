//! Policies that are written as a configuration and read back.

use std::time::Duration;

use http::{Method, StatusCode};
use redlock_axum::{Dialect, HoldUntil, LockPolicies, LockPolicy, OnLost};
use serde::{Deserialize, Serialize};

use super::{orders, policies};

#[derive(Debug, Deserialize, Serialize)]
struct Config {
    locks: LockPolicies,
}

/// A policy with a value for every field.
fn every_field() -> LockPolicy {
    LockPolicy::new("/stock/{sku}", "stock:{sku:lower}")
        .methods([Method::PUT, Method::PATCH])
        .expire(Duration::from_millis(1500))
        .wait_forever()
        .renew(true)
        .max_hold(Duration::from_secs(3600))
        .min_hold(Duration::from_secs(1))
        .keep(false)
        .reentrant(true)
        .fair()
        .dialect(Dialect::Redisson)
        .fenced(true)
        .on_lost(OnLost::Abort)
        .contended_status(StatusCode::LOCKED)
        .retry_after_max(Duration::from_secs(30))
        .hold_until(HoldUntil::EndOfBody)
}

/// Policies of shared locks, whose fields exclude others.
fn shared() -> [LockPolicy; 3] {
    [
        LockPolicy::new("/prices", "prices").shared(),
        LockPolicy::new("/exports", "exports").permits(3),
        LockPolicy::new("/catalogue", "catalogue").shared_on([Method::GET, Method::HEAD]),
    ]
}

#[test]
fn a_table_is_written_without_defaults() {
    let [prices, exports, catalogue] = shared();
    let policy = orders().on_lost(OnLost::KeepGoing);
    let locks = policies([policy, every_field(), prices, exports, catalogue]);
    assert_eq!(
        toml::to_string(&Config { locks }).unwrap(),
        r#"[[locks]]
route = "/orders/{id}"
key = "order:{id:u64}"

[[locks]]
route = "/stock/{sku}"
key = "stock:{sku:lower}"
methods = ["PUT", "PATCH"]
expire = "1s 500ms"
wait_time = "forever"
renew = true
max_hold = "1h"
min_hold = "1s"
keep = false
reentrant = true
fair = true
dialect = "redisson"
fenced = true
on_lost = "abort"
contended_status = 423
retry_after_max = "30s"
hold_until = "end_of_body"

[[locks]]
route = "/prices"
key = "prices"
shared = true

[[locks]]
route = "/exports"
key = "exports"
permits = 3

[[locks]]
route = "/catalogue"
key = "catalogue"
shared_on = ["GET", "HEAD"]
"#
    );
}

#[test]
fn a_written_table_is_read_back_unchanged() {
    let table = || policies([orders(), every_field()].into_iter().chain(shared()));
    let config = Config { locks: table() };
    let written = ron::ser::to_string_pretty(&config, ron::ser::PrettyConfig::new()).unwrap();
    for copy in [
        toml::from_str::<Config>(&toml::to_string(&config).unwrap()).unwrap(),
        serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap(),
        ron::from_str(&written).unwrap(),
    ] {
        // The policies have no `==`; their `Debug` has all fields.
        let policies = |table: &LockPolicies| {
            table.unmatched().map(|policy| format!("{policy:?}")).collect::<Vec<_>>()
        };
        assert_eq!(policies(&copy.locks), policies(&table()));
    }
}

#[test]
fn the_policies_of_a_ron_file_are_structs() {
    let table: LockPolicies = ron::from_str(
        r#"[
            (route: "/orders/{id}", key: "order:{id:u64}"),
            LockPolicy(
                route: "/stock/{sku}",
                key: "stock:{sku}",
                methods: Some("POST"),
                expire: Some(5),
                on_lost: Some(abort),
                contended_status: Some(423),
            ),
        ]"#,
    )
    .unwrap();
    let names: Vec<_> = table.unmatched().map(ToString::to_string).collect();
    assert_eq!(names, ["/orders/{id}", "POST /stock/{sku}"]);
}

/// Environment variables have only texts.
#[test]
fn numbers_and_switches_may_be_texts() {
    let read = |fields: &str| {
        toml::from_str::<LockPolicy>(&format!("route = '/'\nkey = 'k'\n{fields}"))
            .map(|policy| format!("{policy:?}"))
    };
    for (texts, values) in [
        (
            "expire = '10'\ncontended_status = '423'\nfenced = 'true'\nrenew = 'false'",
            "expire = 10\ncontended_status = 423\nfenced = true\nrenew = false",
        ),
        ("shared = 'true'", "shared = true"),
        ("permits = '3'", "permits = 3"),
        ("shared_on = 'GET'", "shared_on = ['GET']"),
    ] {
        assert_eq!(read(texts).unwrap(), read(values).unwrap());
    }
    for wrong in ["contended_status = '42'", "contended_status = '-409'", "contended_status = -409"]
    {
        let error = read(wrong).unwrap_err().to_string();
        assert!(error.contains("expected an HTTP status such as 409 or 423"), "{error}");
    }
}
