//! A service connects by its configuration: a part of a TOML file, or environment variables.

use std::time::Duration;

use redlock_core::{ConfigError, ConnectError, LockManager, LockManagerConfig};
use redlock_tests::{RedisServer, Servers};

use super::run_again;

const PASSWORD: &str = "c0nfigured-word";

#[derive(Debug, serde::Deserialize)]
struct Service {
    locks: LockManagerConfig,
}

async fn three_servers() -> Servers {
    Servers::start_with(&RedisServer::options().password(PASSWORD), 3).await
}

/// Locks a key, and checks where and for how long the servers hold it.
async fn lock_with_prefix_and_lease(locks: &LockManager, servers: &Servers) {
    let guard = locks.lock("order:42").try_acquire().await.unwrap();
    for server in servers.iter() {
        let mut probe = server.probe().await;
        assert_eq!(probe.keys().await, ["shop:order:42"]);
        let ttl: i64 = probe.command(["PTTL", "shop:order:42"]).await;
        assert!((60_001..=90_000).contains(&ttl), "{ttl}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_service_connects_by_its_toml() {
    let servers = three_servers().await;
    let toml = format!(
        "[locks]\nurls = {:?}\nprefix = 'shop:'\nexpire = '1m 30s'\nnode_timeout = 5\n\
         connect_timeout = '10s'\n",
        servers.urls()
    );
    let service: Service = toml::from_str(&toml).unwrap();
    let locks = service.locks.connect().await.unwrap();
    let names: Vec<_> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    assert_eq!(locks.nodes().collect::<Vec<_>>(), names);
    lock_with_prefix_and_lease(&locks, &servers).await;

    let shown = format!("{service:?}");
    assert!(!shown.contains(PASSWORD) && names.iter().all(|name| shown.contains(name)), "{shown}");
}

/// A wrong URL is an error of `connect`, which does not repeat it.
#[tokio::test]
async fn a_wrong_url_of_a_configuration_is_an_error_with_its_position() {
    let toml = "locks = { urls = ['redis://127.0.0.1', 'redis://:unusable-word@h/x'] }";
    let service: Service = toml::from_str(toml).unwrap();
    let error = service.locks.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidUrl { position: 2, .. }), "{error}");
    assert!(!format!("{error} {error:?} {service:?}").contains("unusable-word"), "{error:?}");
}

/// The variables are those of a second process, because a process cannot safely change its own.
#[tokio::test]
async fn a_service_connects_by_its_environment() {
    const OUTCOME: &str = "REDLOCK_TEST_CONFIGURED";
    match std::env::var(OUTCOME).as_deref() {
        Ok("connects") => {
            let locks = LockManagerConfig::from_env("LOCKS").unwrap().connect().await.unwrap();
            let guard = locks.lock("order:42").try_acquire().await.unwrap();
            assert!(guard.remaining() > Duration::from_secs(60));
            guard.keep_until_expiry();
            locks.shutdown().await;
            return;
        }
        Ok(_) => {
            let error = LockManagerConfig::from_env("LOCKS").unwrap_err();
            assert!(matches!(error, ConfigError::UnknownVariable { .. }), "{error}");
            return;
        }
        Err(_) => {}
    }
    let servers = three_servers().await;
    let run = |outcome: &str, variables: &[(&str, &str)]| {
        let output = run_again(&[&[(OUTCOME, outcome)], variables].concat());
        assert!(output.status.success(), "{outcome}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{outcome}");
    };
    let urls = servers.urls().join(",");
    let variables = [
        ("LOCKS_URLS", &*urls),
        ("LOCKS_PREFIX", "shop:"),
        ("LOCKS_EXPIRE", "90"),
        ("LOCKS_NODE_TIMEOUT", "5s"),
        ("LOCKS_CONNECT_TIMEOUT", "10s"),
    ];
    run("connects", &variables);
    for server in servers.iter() {
        assert_eq!(server.probe().await.keys().await, ["shop:order:42"]);
    }
    run("is refused", &[&variables[..], &[("LOCKS_LEASE", "90")]].concat());
}
