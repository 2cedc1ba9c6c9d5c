//! A client of a database, for rows that are no locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, NoTls};

use super::url::{self, PostgresUrl};
use super::{error, socket, sql};
use crate::error::NodeError;
use crate::store::kit::description::StoreUrl;

/// The longest time to connect.
const LIMIT: Duration = Duration::from_secs(1);
/// The time after a failed attempt to connect in which callers get its error, and do not connect again.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest time for which a statement waits for a row that another transaction has changed.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// A client of a PostgreSQL database for the other crates of this workspace, over one connection that is made anew when
/// it has broken. No public API.
pub struct PostgresClient {
    url: PostgresUrl,
    client: ArcSwapOption<Client>,
    /// The last failed attempt to connect. Callers that find no connection queue here.
    failed: Mutex<Option<(Instant, NodeError)>>,
}

impl PostgresClient {
    /// Returns a client of the database of a URL, which is not connected yet.
    ///
    /// # Errors
    ///
    /// The mistake in the URL, without repeating it.
    pub fn new(url: &str) -> Result<Self, String> {
        let url = PostgresUrl::parse(url)?;
        Ok(Self { url, client: ArcSwapOption::empty(), failed: Mutex::default() })
    }

    /// Returns the hosts, the database, and the schema unless it is `public`.
    pub fn name(&self) -> String {
        self.url.name()
    }

    /// Returns the schema of the URL as a name in a statement.
    pub fn schema(&self) -> String {
        sql::quoted(&self.url.schema)
    }

    /// Returns a connection. Makes it if there is none.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub async fn client(&self) -> Result<Arc<Client>, NodeError> {
        let alive = || self.client.load_full().filter(|client| !client.is_closed());
        if let Some(client) = alive() {
            return Ok(client);
        }
        let mut failed = self.failed.lock().await;
        if let Some(client) = alive() {
            return Ok(client);
        }
        if let Some((at, error)) = &*failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let late = |_| Err(NodeError::NotConnected(format!("not within {LIMIT:?}").into()));
        match timeout(LIMIT, self.connect()).await.unwrap_or_else(late) {
            Ok(client) => {
                let client = Arc::new(client);
                self.client.store(Some(Arc::clone(&client)));
                *failed = None;
                Ok(client)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Gives up a connection whose server does not answer.
    pub fn give_up(&self, client: &Arc<Client>) {
        let current = self.client.load_full();
        if current.is_some_and(|current| Arc::ptr_eq(&current, client)) {
            self.client.store(None);
        }
    }

    /// Connects to the first host that is a primary server.
    async fn connect(&self) -> Result<Client, NodeError> {
        let Self { url, .. } = self;
        let mut config = url.config.clone();
        if let Some(provider) = &url.provider {
            let credentials = provider.credentials(LIMIT).await;
            let credentials =
                credentials.map_err(|reason| NodeError::Credentials(reason.into()))?;
            config.password(&credentials.password);
        }
        config.application_name("redlock-answers").ssl_mode(SslMode::Disable);
        if !url.has_pooler {
            let lock_timeout = LOCK_TIMEOUT.as_millis();
            config.options(format!(
                "-c lock_timeout={lock_timeout} -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off"
            ));
        }
        let mut first_error = None;
        for (host, port) in url.servers() {
            let attempt = async {
                let (socket, _) = socket::open(host, port, url.tls.as_ref()).await?;
                let connected = config.connect_raw(socket, NoTls).await;
                let (client, connection) = connected.map_err(|error| error::of_connect(&error))?;
                tokio::spawn(connection);
                let replica = client.query_typed("select pg_is_in_recovery()", &[]).await;
                let replica = replica.map_err(|error| error::of_connect(&error))?;
                match replica.first().map(|row| row.try_get(0)) {
                    Some(Ok(false)) => Ok(client),
                    _ => Err(NodeError::Server("the server is a replica".into())),
                }
            };
            match attempt.await {
                Ok(client) => return Ok(client),
                Err(error) => {
                    first_error.get_or_insert(error.at(&url::address(host, port)));
                }
            }
        }
        Err(first_error.unwrap_or_else(|| NodeError::NotConnected("the URL has no host".into())))
    }
}

impl fmt::Debug for PostgresClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClient").field("server", &self.url.name()).finish_non_exhaustive()
    }
}

/// Converts the error of a statement. No public API.
pub fn statement_error(error: &tokio_postgres::Error) -> NodeError {
    error::of_operation(error)
}
