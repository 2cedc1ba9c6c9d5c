//! Replicas, and their promotion.

use super::{PostgresServer, START};
use crate::eventually::eventually;

impl PostgresServer {
    /// Starts a replica of this server, and waits until the replica receives its writes. If it is `synchronous`, a commit
    /// on this server waits until the replica has stored it.
    ///
    /// # Panics
    ///
    /// If the replica cannot be started.
    pub async fn start_replica(&self, synchronous: bool) -> Self {
        let source = format!("{} application_name=replica", self.admin_url());
        let installation = self.installation;
        let replica = Self::launch_new(self.options.clone(), installation, |data| {
            installation.folder(data);
            let options = "--checkpoint=fast --no-sync --write-recovery-conf -D";
            let mut options: Vec<_> = options.split(' ').map(str::to_owned).collect();
            options.extend([data.display().to_string(), "-d".into(), source.clone()]);
            installation.run("pg_basebackup", &options);
        })
        .await;
        let admin = self.admin().await;
        if synchronous {
            let set = "alter system set synchronous_standby_names = 'replica'";
            admin.batch_execute(set).await.expect("a setting");
            admin.batch_execute("select pg_reload_conf()").await.expect("a reload");
        }
        let state = if synchronous { "sync" } else { "async" };
        let sql = "select from pg_stat_replication where state = 'streaming' and sync_state = $1";
        eventually("the replica receives writes", START, async || {
            let rows = admin.query(sql, &[&state]).await.expect("the replicas");
            (!rows.is_empty()).then_some(())
        })
        .await;
        replica
    }

    /// Keeps this replica from receiving any further write of its primary.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn cut_off(&self) {
        let admin = self.admin().await;
        admin.batch_execute("alter system set primary_conninfo = ''").await.expect("a setting");
        admin.batch_execute("select pg_reload_conf()").await.expect("a reload");
        eventually("the replica receives nothing", START, async || {
            let rows = admin.query("select from pg_stat_wal_receiver", &[]).await;
            rows.expect("the receiver").is_empty().then_some(())
        })
        .await;
    }

    /// Makes this replica a primary, and waits until it accepts writes.
    ///
    /// # Panics
    ///
    /// If the server is no replica.
    pub async fn promote(&self) {
        let promoted = self.admin().await.query_one("select pg_promote()", &[]).await;
        assert!(promoted.expect("a replica").get::<_, bool>(0), "the replica was not promoted");
    }
}
