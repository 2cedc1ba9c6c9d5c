//! Makes connections: to the first host that is a primary server, with its checks and its prepared statements.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join5, try_join_all};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::config::{Config, Host, SslMode};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use super::error;
use super::pooler;
use super::schema::{Backend, Findings};
use super::session::{ServerConnection, Session, driven};
use super::socket::{self, NamedAddress};
use super::sql::{BEGAN, END, FINDINGS, Statement};
use super::url::{self, PostgresUrl};
use crate::clock::Clock;
use crate::error::NodeError;
use crate::node::NodeSettings;
use crate::store::kit::connect_time::ConnectTime;
use crate::store::kit::wall_clock::Reading;

/// The pause before the server is asked again whether a process has ended.
const ENDING: Duration = Duration::from_millis(20);
/// Longer than a tick of the coarsest clock.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// A new connection.
pub(super) struct Connected {
    pub(super) session: Arc<Session>,
    pub(super) connection: ServerConnection,
    pub(super) findings: Findings,
    /// The host and the port of the URL.
    pub(super) server: String,
    /// The name and the address of the server, if it has a name.
    pub(super) address: Option<NamedAddress>,
    /// By how many milliseconds the clock of the server is ahead.
    pub(super) clock_offset_ms: Option<i64>,
}

/// Connects to the first host that is a primary server, and that `check` accepts. Ends the process behind the former connection first: it may still
/// execute operations that it has received.
pub(super) async fn connect(
    url: &PostgresUrl,
    settings: &NodeSettings,
    former: Option<Backend>,
    check: impl Fn(&Findings) -> Result<(), NodeError>,
) -> Result<Connected, NodeError> {
    let limit = settings.connect_timeout;
    let deadline = Instant::now() + limit * 7 / 8;
    let mut config = url.config.clone();
    if let Some(provider) = &url.provider {
        let credentials = provider.credentials(limit * 3 / 4).await;
        let credentials = credentials.map_err(|reason| NodeError::Credentials(reason.into()))?;
        config.password(&credentials.password);
        if let Some(user) = credentials.username {
            config.user(user);
        }
    }
    config.application_name("redlock");
    // The socket is encrypted already.
    config.ssl_mode(SslMode::Disable);
    if !url.has_pooler {
        // A row that somebody has locked must not block the other locks of the connection.
        let lock_timeout = (settings.node_timeout / 2).as_millis().max(1);
        config.options(format!(
            "-c lock_timeout={lock_timeout} -c plan_cache_mode=force_generic_plan -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off -c client_min_messages=warning -c search_path=pg_catalog"
        ));
    }
    let (mut first_error, mut rest) = (None, url.servers().count());
    for (host, port) in url.servers() {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / u32::try_from(rest).unwrap_or(1);
        let former = former.map(|backend| (backend, now + share * 3 / 4));
        // Boxed, because the futures that connect again later would be as large all the time.
        let attempt = Box::pin(open(url, &config, host, port, former, share / 4, &*settings.clock));
        let time = ConnectTime::begin(limit);
        let connected = timeout_at(now + share, attempt).await.unwrap_or_else(|_| Err(time.late()));
        let checked =
            connected.and_then(|connected| check(&connected.findings).map(|()| connected));
        match checked {
            Ok(connected) => return Ok(connected),
            Err(error) if url.servers().count() == 1 => return Err(error),
            Err(error) => {
                first_error.get_or_insert(error.at(&url::address(host, port)));
            }
        }
        rest -= 1;
    }
    Err(first_error.unwrap_or_else(|| NodeError::NotConnected("the URL has no host".into())))
}

async fn open(
    url: &PostgresUrl,
    config: &Config,
    host: &Host,
    port: u16,
    former: Option<(Backend, Instant)>,
    limit: Duration,
    clock: &dyn Clock,
) -> Result<Connected, NodeError> {
    let (socket, address) = socket::open(host, port, url.tls.as_ref()).await?;
    let connected = config.connect_raw(socket, NoTls).await;
    let (client, mut connection) = connected.map_err(|error| error::of_connect(&error))?;
    let session = set_up(url, client, former, clock);
    let (session, findings, reading) = driven(&mut connection, session).await?;
    let clock_offset_ms = Some(reading.offset_ms(clock));
    if !url.has_pooler {
        let other = async || {
            let socket = socket::open(host, port, url.tls.as_ref()).await?.0;
            let connected = config.connect_raw(socket, NoTls).await;
            let (client, mut connection) = connected.map_err(|error| error::of_connect(&error))?;
            let session = Session { client, prepared: Vec::new(), schema: url.schema.clone() };
            driven(&mut connection, pooler::current(&session)).await
        };
        pooler::check(&session, &mut connection, &findings, limit, other()).await?;
    }
    let (session, server) = (Arc::new(session), url::address(host, port));
    Ok(Connected { session, connection, findings, server, address, clock_offset_ms })
}

async fn set_up(
    url: &PostgresUrl,
    client: Client,
    former: Option<(Backend, Instant)>,
    clock: &dyn Clock,
) -> Result<(Session, Findings, Reading), NodeError> {
    let schema = url.schema.clone();
    let failed = |error| error::of_connect(&error);
    let wanted: [(&(dyn ToSql + Sync), Type); 1] = [(&schema, Type::TEXT)];
    let mut rows = Vec::new();
    let find = Reading::take(clock, async {
        rows = client.query_typed(FINDINGS, &wanted).await?;
        let clock = rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>("clock"))?;
        Ok::<_, tokio_postgres::Error>(Duration::from_micros(clock.unsigned_abs()))
    });
    let statements = if url.has_pooler { &[][..] } else { &Statement::ALL };
    let prepare = try_join_all(statements.iter().map(async |statement| {
        client.prepare_typed(&statement.sql(&schema), statement.types()).await
    }));
    // Where no statement was prepared: releases a lock that nobody has, because a name is not empty. Rights are checked later.
    let write = async {
        if url.has_pooler {
            let nobody: [(&(dyn ToSql + Sync), Type); 2] = [(&"", Type::TEXT), (&"", Type::TEXT)];
            let _ = client.query_typed(&Statement::Release.sql(&schema), &nobody).await;
        }
    };
    // In one round trip, in this order.
    let (reading, prepared, (), first, second) =
        join5(find, prepare, write, began(&client), began(&client)).await;
    let reading = reading.map_err(failed)?;
    let findings = Findings::read(rows.first().ok_or(NodeError::UnexpectedReply)?, &schema)?;
    let prepared = prepared.map_err(failed)?;
    let first = first.map_err(failed)?;
    if second.map_err(failed)? == first {
        // Two transactions have one time, too, if the clock of the server is coarse.
        sleep(CLOCK_TICK).await;
        if began(&client).await.map_err(failed)? == first {
            return Err(error::open_transaction());
        }
    }
    if let Some((former, until)) = former.filter(|_| !url.has_pooler) {
        end(&client, former, until).await?;
    }
    Ok((Session { client, prepared, schema }, findings, reading))
}

/// Returns when the transaction of a statement has begun, in microseconds.
async fn began(client: &Client) -> Result<i64, tokio_postgres::Error> {
    client.query_typed(BEGAN, &[]).await?.first().map_or(Ok(0), |row| row.try_get(0))
}

/// Ends a process of the server, and waits until it is gone: the call only sends a signal. On another server there is no such
/// process. A role may not end the process of another role, which may end by itself.
async fn end(
    client: &Client,
    (pid, start, role): Backend,
    until: Instant,
) -> Result<(), NodeError> {
    let backend: [(&(dyn ToSql + Sync), Type); 3] =
        [(&pid, Type::INT4), (&start, Type::INT8), (&role, Type::OID)];
    loop {
        let ended = client.query_typed(END, &backend).await;
        match ended.map_err(|error| error::of_connect(&error)) {
            Ok(rows) if rows.is_empty() => return Ok(()),
            Ok(_) | Err(NodeError::NotPermitted(_)) if Instant::now() < until => {
                sleep(ENDING).await;
            }
            Ok(_) => {
                return Err(NodeError::NotConnected("the former session has not ended yet".into()));
            }
            Err(NodeError::NotPermitted(reason)) => {
                return Err(NodeError::Server(
                    format!("the former session, which has another role, has not ended yet: {reason}; grant pg_signal_backend to the role of the new one").into(),
                ));
            }
            Err(error) => return Err(error),
        }
    }
}
