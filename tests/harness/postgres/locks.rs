//! The table of locks, read without the library under test.

use std::time::Duration;

use super::PostgresServer;

impl PostgresServer {
    /// Returns the time until the lease of a lock ends; `None` if nobody holds the lock.
    pub async fn locks_rest(&self, name: &str) -> Option<Duration> {
        let sql = format!(
            "select (extract(epoch from expires - clock_timestamp()) * 1000000)::bigint from {} \
             where name = $1 and {HELD}",
            self.table()
        );
        let row = self.admin().await.query_opt(&sql, &[&name]).await.expect("the lock");
        row.map(|row| Duration::from_micros(row.get::<_, i64>(0).unsigned_abs()))
    }

    /// Returns the number of held locks.
    pub async fn locks_count(&self) -> usize {
        self.held_locks().await.len()
    }

    /// Returns the names of the held locks.
    pub(crate) async fn held_locks(&self) -> Vec<String> {
        let sql = format!("select name from {} where {HELD}", self.table());
        let rows = self.admin().await.query(&sql, &[]).await.expect("the locks");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Deletes the row of a lock. Returns whether there was one.
    pub async fn delete_lock(&self, name: &str) -> bool {
        let sql = format!("delete from {} where name = $1", self.table());
        self.admin().await.execute(&sql, &[&name]).await.expect("a deletion") > 0
    }

    fn table(&self) -> String {
        format!("\"{}\".redlock_lease", self.schema())
    }
}

/// The condition on the row of a lock that somebody holds.
const HELD: &str = "token <> '' and expires > clock_timestamp()";
