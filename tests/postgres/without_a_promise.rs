//! Cases for which the guide has no promise. Each test shows the effect that the guide describes.

use redlock_core::{FencingToken, LockError, LockGuard, NodeError};
use redlock_tests::{Logs, PostgresServer, Proxy, eventually, skip};

use crate::clock::set_clock;
use crate::failover::url;
use crate::{KEY, LONG, SOON, acquire, connect, failure, is_contended, is_held, start};

/// Writes with the number of a guard, as the page about fencing shows it. Returns whether the database admits the write.
async fn writes(server: &PostgresServer, token: FencingToken) -> bool {
    let sql = "insert into fence as f (key, number, holder) values ($1, $2, $3)
        on conflict (key) do update set number = excluded.number, holder = excluded.holder
        where (f.number, f.holder) <= (excluded.number, excluded.holder)";
    let admin = server.admin().await;
    admin.execute(sql, &[&KEY, &token.number(), &token.holder()]).await.unwrap() == 1
}

fn token(guard: &LockGuard) -> FencingToken {
    guard.fencing_token().unwrap()
}

/// The server writes its log some seconds after the grant, unless it is killed.
#[tokio::test]
async fn a_server_with_asynchronous_commits_forgets_the_last_grants() {
    let logs = Logs::collect();
    let options = PostgresServer::options()
        .setting("synchronous_commit", "off")
        .setting("wal_writer_delay", "10s");
    let Ok(mut server) = options.start().await.inspect_err(|why| skip(why)) else { return };
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    assert!(logs.count("WARN", "synchronous_commit is off") > 0);
    // The role and the table stay.
    server.admin().await.batch_execute("checkpoint").await.unwrap();
    let mut key = 0;
    let (first, second) = eventually("a grant is forgotten", SOON, async || {
        key += 1;
        let key = key.to_string();
        let first = acquire(&holder, &key).await;
        server.kill();
        server.restart().await;
        let second = eventually("the server answers", SOON, async || {
            let second = other.lock(&key).expire(LONG).try_acquire().await;
            let is_decided = second.as_ref().map_or_else(LockError::is_contended, |_| true);
            is_decided.then_some(second)
        });
        Some((first, second.await.ok()?))
    })
    .await;
    assert!(first.is_valid() && second.is_valid());
}

/// The lock of the backup's time is held again, and the later lock is gone: it has two holders. The table of the numbers was
/// restored too, and still refuses the first holder after the second one has written.
#[tokio::test]
async fn a_restored_backup_brings_old_locks_back_and_forgets_later_ones() {
    let Some(mut server) = start().await else { return };
    let (holder, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let table =
        "create table fence (key text primary key, number bigint not null, holder bigint not null)";
    server.admin().await.batch_execute(table).await.unwrap();
    let old = holder.lock("old").expire(LONG).try_acquire().await.unwrap();
    server.stop();
    server.back_up();
    server.restart().await;
    is_held(&old).await;
    old.release().await.unwrap();
    let first = acquire(&holder, KEY).await;
    assert!(writes(&server, token(&first)).await);

    server.kill();
    server.restore();
    server.restart().await;
    is_contended(&other, "old").await;
    let second = acquire(&other, KEY).await;
    assert!(first.is_valid() && second.is_valid());
    assert!(token(&second) > token(&first));
    assert!(writes(&server, token(&second)).await);
    assert!(!writes(&server, token(&first)).await);
}

/// The numbers of the standby are at least its own time. Only the row of the lock, which a synchronous standby has, keeps
/// them above those of the former primary.
#[tokio::test]
async fn a_promoted_standby_whose_clock_is_behind_may_give_smaller_numbers() {
    for synchronous in [false, true] {
        let Some(mut primary) = start().await else { return };
        let behind = format!(
            "case current_setting('port') when '{}' then interval '0' else interval '-1 hour' end",
            primary.port()
        );
        set_clock(&primary.admin().await, &behind).await;
        let replica = primary.start_replica(synchronous).await;
        let url = url(&primary, &replica);
        let (holder, other) = (connect(&url).await, connect(&url).await);
        if !synchronous {
            replica.cut_off().await;
        }
        let first = holder.lock(KEY).fenced(true).try_acquire().await.unwrap();
        let number = token(&first).number();
        first.release().await.unwrap();
        if synchronous {
            // The standby has the release, whose transaction does not wait for it.
            eventually("the lock is free", SOON, async || {
                (replica.locks_count().await == 0).then_some(())
            })
            .await;
        }
        primary.kill();
        replica.promote().await;
        let next = acquire(&other, KEY).await;
        let next = token(&next).number();
        assert_eq!(next > number, synchronous, "{next} after {number}");
    }
}

/// A policy or a trigger may keep the node from reading or writing a row. One lock is free, and somebody has the other.
#[tokio::test]
async fn policies_and_triggers_on_the_table_lead_to_no_second_holder() {
    let Some(server) = start().await else { return };
    let (manager, admin) = (connect(&server.url()).await, server.admin().await);
    let policy = |policy: &str| {
        let enable = "alter table locks.redlock_lease enable row level security";
        if policy.is_empty() {
            enable.to_owned()
        } else {
            format!("{enable}; create policy p on locks.redlock_lease {policy}")
        }
    };
    let trigger = |event: &str| {
        format!(
            "create function locks.refuse() returns trigger language plpgsql as 'begin return null; end'; \
             create trigger t before {event} on locks.redlock_lease for each row execute function locks.refuse()"
        )
    };
    for (change, free, held) in [
        (policy(""), "not permitted", "not permitted"),
        (policy("for insert with check (true)"), "not permitted", "not permitted"),
        (policy("using (token = '') with check (true)"), "not permitted", "not permitted"),
        (policy("using (expires < now()) with check (true)"), "not permitted", "not permitted"),
        (policy("using (true)"), "granted", "contended"),
        // Nobody has the lock, so that the caller must not leave its work to another one.
        (trigger("insert"), "split", "contended"),
        (trigger("insert or update"), "split", "contended"),
        (trigger("update"), "granted", "contended"),
    ] {
        let hold = "truncate locks.redlock_lease; \
            insert into locks.redlock_lease values ('held', 'token', now() + interval '1 hour', 1)";
        admin.batch_execute(hold).await.unwrap();
        admin.batch_execute(&change).await.unwrap();
        for (key, expected) in [("free", free), ("held", held)] {
            let outcome = match manager.lock(key).try_acquire().await {
                Ok(_) => "granted",
                Err(error) if error.is_contended() => "contended",
                Err(error) if error.is_split() => "split",
                Err(error) if matches!(failure(&error), NodeError::NotPermitted(_)) => {
                    "not permitted"
                }
                Err(error) => panic!("{change}: {error:?}"),
            };
            assert_eq!(outcome, expected, "{change}: {key}");
        }
        let repair = "alter table locks.redlock_lease disable row level security; \
            drop policy if exists p on locks.redlock_lease; drop function if exists locks.refuse cascade";
        admin.batch_execute(repair).await.unwrap();
    }
}

/// Returns the URL of a server through a proxy, which stands for a name that may lead to another server.
fn through(proxy: &Proxy, server: &PostgresServer) -> String {
    server.url_at("127.0.0.1", proxy.port())
}

/// The former server accepts writes, so a process that is still connected to it has the lock that the other server grants.
#[tokio::test]
async fn a_url_that_moves_to_another_cluster_is_a_warning_that_names_both() {
    let logs = Logs::collect();
    let start = || PostgresServer::options().independent().start();
    let Ok(former) = start().await.inspect_err(|why| skip(why)) else { return };
    let next = start().await.unwrap();
    let proxy = Proxy::to_port(former.port()).await;
    let holder = connect(&former.url()).await;
    let other = connect(&through(&proxy, &former)).await;
    let first = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    is_contended(&other, KEY).await;
    proxy.lead_to_port(next.port());
    proxy.reset();
    let second = acquire(&other, KEY).await;
    is_held(&first).await;
    assert!(first.is_valid() && second.is_valid());
    let warning = eventually("the log names the move", SOON, async || {
        let lines = logs.lines();
        lines.into_iter().find(|line| line.contains("leads to another database than before"))
    })
    .await;
    for server in [&former, &next] {
        let sql = "select system_identifier from pg_control_system()";
        let system: i64 = server.admin().await.query_one(sql, &[]).await.unwrap().get(0);
        assert!(warning.contains(&format!("postgres:{system}:postgres:locks")), "{warning}");
    }
    assert!(warning.contains(&proxy.port().to_string()), "{warning}");
}

/// A process that has used the promoted server refuses the former primary, to which the name leads again.
#[tokio::test]
async fn a_url_that_moves_to_a_promoted_standby_beside_its_live_primary_is_a_warning() {
    let logs = Logs::collect();
    let Some(primary) = start().await else { return };
    let replica = primary.start_replica(false).await;
    let proxy = Proxy::to_port(primary.port()).await;
    let holder = connect(&primary.url()).await;
    let other = connect(&through(&proxy, &primary)).await;
    replica.promote().await;
    let first = holder.lock(KEY).expire(LONG).try_acquire().await.unwrap();
    is_contended(&other, KEY).await;
    proxy.lead_to_port(replica.port());
    proxy.reset();
    let second = acquire(&other, KEY).await;
    is_held(&first).await;
    assert!(first.is_valid() && second.is_valid());
    assert_eq!(logs.count("WARN", "another server has taken over"), 1, "{:?}", logs.lines());
    proxy.lead_to_port(primary.port());
    proxy.reset();
    eventually("the former primary is refused", SOON, async || {
        let error = other.lock("free").try_acquire().await.err()?;
        failure(&error).to_string().contains("a standby has replaced this server").then_some(())
    })
    .await;
}
