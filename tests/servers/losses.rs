//! The warning about a lost lock has the words of the server that has refused its renewal.

use std::time::Duration;

use redlock_core::{HoldError, LockManager, OnLost, RunError};
use redlock_tests::{Logs, RedisServer, eventually};

use super::server_states::state::State;
use super::{SOON, builder};

const LEASE: Duration = Duration::from_secs(1);

/// Returns the warning about a lock that is lost when its holder gets into this state.
async fn loss(locks: &LockManager, logs: &Logs, begin: impl AsyncFnOnce()) -> String {
    let guard = locks.lock("order:42").expire(LEASE).renew(true).try_acquire().await.unwrap();
    begin().await;
    guard.lost().await;
    let warning = eventually("the loss is logged", SOON, async || {
        let lines = logs.lines().into_iter();
        let mut lines = lines.filter(|line| line.trim_start().starts_with("WARN"));
        lines.find(|line| line.contains("a lock was lost"))
    });
    let warning = warning.await;
    let error = guard.extend(LEASE).await.unwrap_err();
    let HoldError::Lost(lost) = &error else { panic!("{error:?}") };
    let votes = lost.votes().unwrap();
    assert!(warning.contains(&votes.to_string()), "{votes} is not in {warning}");
    warning
}

#[tokio::test]
async fn a_loss_has_the_words_of_the_server_that_has_refused_the_renewal() {
    for state in [State::ReadOnly, State::Misconfigured, State::MasterDown, State::NoReplicas] {
        let logs = Logs::collect();
        let mut server = state.start_server().await;
        let locks = builder([server.url()]).connect().await.unwrap();
        let mut trouble = None;
        let warning = loss(&locks, &logs, async || trouble = Some(state.begin(&mut server).await));
        let warning = warning.await;
        assert!(warning.contains(state.words()), "{state:?}: {warning}");
        assert!(warning.contains("found=\"expiry\""), "{warning}");
        trouble.unwrap().end(&server).await;
    }
}

#[tokio::test]
async fn a_loss_without_the_right_to_extend_names_the_command() {
    let logs = Logs::collect();
    let server = RedisServer::start().await;
    let locks = builder([server.url()]).connect().await.unwrap();
    let revoke = async || {
        let revoke = ["ACL", "SETUSER", "default", "-pexpire"];
        server.probe().await.command::<()>(revoke).await;
    };
    let warning = loss(&locks, &logs, revoke).await;
    assert!(warning.contains("not permitted") && warning.contains("pexpire"), "{warning}");

    // The server itself reports a lock that is gone.
    drop(logs);
    let logs = Logs::collect();
    let remove = async || {
        server.probe().await.command::<()>(["DEL", "order:42"]).await;
    };
    server.probe().await.command::<()>(["ACL", "SETUSER", "default", "+pexpire"]).await;
    let locks = builder([server.url()]).connect().await.unwrap();
    let warning = loss(&locks, &logs, remove).await;
    assert!(warning.contains("found=\"hint\"") && warning.contains("not held"), "{warning}");
}

/// The error of work that was stopped has the votes for the log, and none for clients.
#[tokio::test]
async fn work_that_was_stopped_has_the_words_of_the_server_in_its_diagnostics() {
    let server = RedisServer::start().await;
    let locks = builder([server.url()]).connect().await.unwrap();
    let request = locks.lock("order:42").expire(LEASE).renew(true).on_lost(OnLost::Abort);
    let run = request.run(async |_| {
        let stop = ["CONFIG", "SET", "min-replicas-to-write", "1"];
        server.probe().await.command::<()>(stop).await;
        std::future::pending::<()>().await;
    });
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::Lost(_)), "{error:?}");
    assert!(error.diagnostics().to_string().contains("NOREPLICAS"), "{}", error.diagnostics());
    assert!(!error.to_string().contains("NOREPLICAS"), "{error}");
}
