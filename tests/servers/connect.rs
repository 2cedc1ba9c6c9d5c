//! Making a manager: what is refused, what is only warned of, what is put up with.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use redlock_core::{ConnectError, LockManager, NodeError, Vote};
use redlock_tests::{Logs, Probe, Proxy, RedisServer, Servers, eventually};

const SOON: Duration = Duration::from_secs(10);
const KEY: &str = "order:42";

#[tokio::test]
async fn wrong_urls_are_refused_with_their_place_and_what_is_allowed() {
    let good = "redis://127.0.0.1";
    for wrong in ["", "127.0.0.1", "http://127.0.0.1", "redis://", "redis://h:port", "redis://h/x"]
    {
        let error = LockManager::connect([good, wrong]).await.unwrap_err();
        assert!(matches!(error, ConnectError::InvalidUrl { position: 2, .. }), "{wrong}: {error}");
        assert!(error.to_string().contains("redis://"), "{wrong}: {error}");
    }
    let error = LockManager::connect([""; 0]).await.unwrap_err();
    assert!(matches!(error, ConnectError::NoNodes), "{error}");
}

/// One server with two votes is no majority.
#[tokio::test]
async fn the_same_server_twice_is_refused_under_two_names_too() {
    let servers = Servers::start(2).await;
    let names = [
        servers[0].url(),
        servers[0].url_at("localhost"),
        format!("{}/7", servers[0].url()),
        format!("unix://{}", servers[0].socket().display()),
    ];
    for again in names {
        let urls = [servers[0].url(), servers[1].url(), again.clone()];
        let error = LockManager::connect(urls).await.unwrap_err();
        let ConnectError::SameServer { first, second, .. } = &error else {
            panic!("{again}: {error}")
        };
        assert!(first.contains(&servers[0].port().to_string()) || first.contains("sock"));
        assert!(error.to_string().contains(&**second), "{error}");
    }
}

/// The connection to the wrong server is not kept, which would last for as long as that server.
#[tokio::test]
async fn a_node_that_led_to_anothers_server_for_a_while_is_used_again() {
    let servers = Servers::start(2).await;
    let second = Proxy::to(&servers[1]).await;
    let locks = LockManager::connect([servers[0].url(), second.url()]).await.unwrap();
    second.lead_to(&servers[0]);
    second.reset();
    eventually("it is refused", SOON, async || {
        let error = locks.lock(KEY).try_acquire().await.err()?;
        let (_, refused) = error.votes()?.iter().nth(1)?;
        matches!(refused, Some(Vote::Failed(NodeError::SameServer(_)))).then_some(())
    })
    .await;
    second.lead_to(&servers[1]);
    let used = async || locks.lock(KEY).try_acquire().await.ok();
    eventually("it is used again", 3 * SOON, used).await.release().await.unwrap();
}

/// Through a bb8 pool alone the answer is "timed out", after 30 s.
#[tokio::test]
async fn a_wrong_password_is_refused_at_once_in_the_servers_own_words() {
    let server = RedisServer::options().password("opensesame").start().await;
    let begun = Instant::now();
    for (url, words) in [
        (server.url_at(":wrong@127.0.0.1").replace(":opensesame@", ""), "WRONGPASS"),
        (format!("redis://127.0.0.1:{}", server.port()), "NOAUTH"),
    ] {
        let error = LockManager::connect([url]).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unavailable { connected: 0, .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
    assert!(begun.elapsed() < SOON);
}

#[tokio::test]
async fn without_a_quorum_each_node_tells_its_reason() {
    let mut servers = Servers::from(vec![
        RedisServer::start().await,
        RedisServer::options().password("opensesame").start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ]);
    servers[2].kill();
    servers[3].freeze();
    let mut urls = servers.urls();
    urls[1] = format!("redis://127.0.0.1:{}", servers[1].port());
    urls.push("redis://no-such-host.invalid".to_owned());
    let begun = Instant::now();
    let error = LockManager::connect(urls).await.unwrap_err();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());

    let ConnectError::Unavailable { connected: 1, quorum: 3, votes, .. } = &error else {
        panic!("{error}");
    };
    let votes: Vec<_> = votes.iter().collect();
    let text = error.to_string();
    for (index, server) in servers.iter().enumerate() {
        assert_eq!(votes[index].0, format!("127.0.0.1:{}", server.port()));
        assert!(text.contains(votes[index].0), "{text}");
    }
    assert_eq!(votes[0].1, Some(&Vote::Granted));
    let refused = matches!(votes[1].1, Some(Vote::Failed(NodeError::NotPermitted(_))));
    assert!(refused, "{text}");
    for (_, vote) in &votes[2..] {
        assert!(matches!(vote, Some(Vote::Failed(NodeError::NotConnected(_)))), "{text}");
    }
    assert!(text.to_lowercase().contains("refused"), "{text}");
}

#[tokio::test]
async fn a_minority_that_is_down_does_not_prevent_the_start_and_is_used_when_it_is_up() {
    let mut servers = Servers::start(5).await;
    servers[0].kill();
    servers[4].freeze();
    let builder = LockManager::builder().urls(servers.urls()).node_timeout(Duration::from_secs(2));
    let locks = builder.connect().await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();

    servers[0].restart().await;
    servers[4].thaw();
    eventually("all nodes vote", SOON, async || {
        let guard = locks.lock(KEY).try_acquire().await.unwrap();
        let keys = servers.keys().await.len();
        guard.release().await.unwrap();
        (keys == servers.len()).then_some(())
    })
    .await;
}

/// A start that waits for a node that hangs takes as long as a connection may take at most.
#[tokio::test]
async fn a_node_that_hangs_does_not_hold_up_the_start() {
    let mut servers = Servers::start(3).await;
    servers[2].freeze();
    let patience = Duration::from_secs(30);
    let builder = LockManager::builder().urls(servers.urls()).connect_timeout(patience);
    let begun = Instant::now();
    let locks = builder.node_timeout(Duration::from_secs(2)).connect().await.unwrap();
    assert!(begun.elapsed() < patience / 2, "{:?}", begun.elapsed());

    servers[2].thaw();
    eventually("the node votes", SOON, async || {
        let guard = locks.lock(KEY).try_acquire().await.unwrap();
        let keys = servers.keys().await.len();
        guard.release().await.unwrap();
        (keys == servers.len()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn even_numbers_of_nodes_need_more_than_half() {
    for (count, may_be_down) in [(2, 0), (4, 1)] {
        let mut servers = Servers::start(count).await;
        for server in &mut servers[..may_be_down] {
            server.kill();
        }
        let locks = LockManager::connect(servers.urls()).await.unwrap();
        locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
        servers[may_be_down].kill();
        let error = LockManager::connect(servers.urls()).await.unwrap_err();
        let quorum = count / 2 + 1;
        let expected = matches!(error, ConnectError::Unavailable { quorum: q, .. } if q == quorum);
        assert!(expected, "{error}");
    }
}

/// With such a policy, all lock keys of a full server were seen to go.
#[tokio::test]
async fn a_server_that_evicts_is_warned_of_by_its_policys_name() {
    let logs = Logs::collect();
    let evicting = RedisServer::options().directive("maxmemory-policy", "allkeys-lru");
    let evicting = evicting.start().await;
    LockManager::connect([evicting.url()]).await.unwrap();
    let warnings = |logs: &Logs| {
        let lines = logs.lines().into_iter();
        lines.filter(|line| line.contains("WARN")).collect::<Vec<_>>()
    };
    let warned = warnings(&logs);
    assert!(warned.iter().any(|line| line.contains("allkeys-lru")), "{warned:?}");
    assert!(warned.iter().any(|line| line.contains(&evicting.port().to_string())), "{warned:?}");

    let before = warned.len();
    let server = RedisServer::start().await;
    LockManager::connect([server.url()]).await.unwrap();
    assert_eq!(warnings(&logs).len(), before, "{:?}", warnings(&logs));
}

/// How many connections the server has accepted.
async fn connections(probe: &mut Probe) -> u64 {
    let info: String = probe.command(["INFO", "stats"]).await;
    let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().trim().parse().unwrap()
}

/// What a server that refuses us is spared, and its log.
async fn seldom_tried_after(strike: &[&[&str]]) {
    let server = RedisServer::options().user("app", "knock-knock").start().await;
    let locks = LockManager::connect([server.url_at("app:knock-knock@127.0.0.1")]).await.unwrap();
    locks.lock(KEY).try_acquire().await.unwrap().release().await.unwrap();
    let mut probe = server.probe().await;
    let before = connections(&mut probe).await;
    let begun = Instant::now();
    for command in strike {
        probe.command::<redis::Value>(command).await;
    }
    eventually("it is refused", SOON, async || {
        let error = locks.lock(KEY).try_acquire().await.err()?;
        error.to_string().contains("WRONGPASS").then_some(())
    })
    .await;
    eventually("it is tried again", SOON * 2, async || {
        (connections(&mut probe).await >= before + 2).then_some(())
    })
    .await;
    // The second attempt; after a server that only went away there would be many by now.
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_that_has_another_password_by_now_is_seldom_tried() {
    let password = ["ACL", "SETUSER", "app", "resetpass", ">another"];
    seldom_tried_after(&[&password, &["CLIENT", "KILL", "USER", "app"]]).await;
}

#[tokio::test]
async fn a_server_that_has_deleted_our_user_is_seldom_tried() {
    seldom_tried_after(&[&["ACL", "DELUSER", "app"]]).await;
}

/// A machine that vanishes says nothing; the kernel shall ask an idle connection after 5 s, and not
/// after two hours.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_connection_is_kept_alive_by_the_kernel() {
    let server = RedisServer::start().await;
    let _locks = LockManager::connect([server.url()]).await.unwrap();
    let port = format!(":{:04X}", server.port());
    let left = eventually("its timer runs", SOON, async || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        sockets.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // To that server, established, and with a keepalive timer.
            let is_ours = fields[2].ends_with(&port) && fields[3] == "01";
            let left = fields[5].strip_prefix("02:").filter(|_| is_ours)?;
            Some(u64::from_str_radix(left, 16).unwrap())
        })
    })
    .await;
    assert!(Duration::from_millis(left * 10) <= Duration::from_secs(5), "{left} hundredths");
}
