//! A job that one copy of a service does at a time: the leader. If it is killed, frozen or cut off, another copy leads.
//!
//! ```sh
//! DATABASE_URL='host=127.0.0.1 user=postgres' LOCKS_URLS=redis://127.0.0.1 \
//!     cargo run --example leader
//! ```
//!
//! The leader takes a step twice a second. Its lock is lost if it cannot be renewed within the lease of three seconds. A
//! process that is stopped does not notice that at once, and may be about to take a step when it goes on. The database
//! refuses this late step by the fencing token: each step stores the token of its leader, unless a later leader has taken
//! a step.

mod server;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use redlock_axum::Leader;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use tracing::{error, info, warn};

const LEASE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);

const TABLES: &str = "
    create table if not exists leader (
        name text primary key, number bigint not null, holder bigint not null
    );
    create table if not exists step (
        id bigint generated always as identity, number bigint not null, holder bigint not null,
        at timestamptz not null default clock_timestamp()
    )";

/// Stores the fencing token of the leader, and takes a step. Changes no row if a later leader has taken a step.
const STEP: &str = "
    with leads as (
        insert into leader as l (name, number, holder) values ($1, $2, $3)
        on conflict (name) do update set number = excluded.number, holder = excluded.holder
        where (l.number, l.holder) <= (excluded.number, excluded.holder)
        returning number, holder
    )
    insert into step (number, holder) select number, holder from leads";

/// One copy of the service.
#[derive(Clone)]
struct Copy {
    database: String,
    leads: Arc<AtomicBool>,
}

impl Copy {
    /// The work of a term. It never ends by itself: it is dropped when the lock is lost.
    async fn lead(self, leader: Leader) {
        let _leads = Leads::begin(&self.leads);
        loop {
            if let Err(error) = self.take_steps(&leader).await {
                error!(%error, "the database failed");
            }
            sleep(PAUSE).await;
        }
    }

    async fn take_steps(&self, leader: &Leader) -> Result<(), tokio_postgres::Error> {
        let token = leader.fencing_token();
        let database = connect(&self.database).await?;
        loop {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&"reminders", &token.number(), &token.holder()];
            if database.execute(STEP, &values).await? == 1 {
                info!("leader: a step");
            } else {
                warn!("leader: a late step was refused");
            }
            sleep(PAUSE).await;
        }
    }
}

/// Whether this copy leads, until the value is dropped.
struct Leads<'a>(&'a AtomicBool);

impl<'a> Leads<'a> {
    fn begin(leads: &'a AtomicBool) -> Self {
        leads.store(true, Ordering::Relaxed);
        Self(leads)
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn who_leads(State(copy): State<Copy>) -> &'static str {
    if copy.leads.load(Ordering::Relaxed) { "this copy leads\n" } else { "this copy waits\n" }
}

#[tokio::main]
async fn main() -> ExitCode {
    server::run(async {
        let database = std::env::var("DATABASE_URL").map_err(|_| {
            "DATABASE_URL is not set; set it to your PostgreSQL server, such as 'host=127.0.0.1 user=postgres'"
        })?;
        connect(&database).await?.batch_execute(TABLES).await?;
        let locks = server::connect().await?;
        let copy = Copy { database, leads: Arc::default() };

        let (lead, leading) = (locks.lead("reminders").expire(LEASE), copy.clone());
        tokio::spawn(async move {
            // It ends with an error when the process stops, and by a mistake, such as a missing right.
            let result = lead.run(async |leader| leading.clone().lead(leader).await).await;
            info!("leader: this copy does not lead any more: {result:?}");
        });
        let app = Router::new().route("/leader", get(who_leads)).with_state(copy);
        server::serve(app, &locks).await
    })
    .await
}
