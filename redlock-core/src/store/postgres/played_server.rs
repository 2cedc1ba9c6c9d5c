//! A server that a test plays: it speaks the few messages of the protocol that a link needs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, try_join_all};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_postgres::{Config, NoTls};

use super::connect::Connected;
use super::error;
use super::schema::Findings;
use super::session::{Session, driven};
use super::socket::ServerSocket;
use super::sql::Statement;

const INT8: i32 = 20;
const TEXT: i32 = 25;

/// The server's end of a connection.
pub(super) struct PlayedServer {
    pub(super) socket: DuplexStream,
    /// The statements by their names.
    prepared: HashMap<String, String>,
    /// The number of the session that executes the statements.
    pub(super) session: i64,
}

/// A request of the client.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) sql: String,
    kind: Kind,
    types: Vec<u8>,
    /// The parameters; `None` is null.
    pub(super) parameters: Vec<Option<Vec<u8>>>,
}

/// The row of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PlayedRow {
    pub(super) number: Option<i64>,
    pub(super) rest: Option<i64>,
    pub(super) holder: Option<&'static str>,
    pub(super) label: Option<&'static str>,
    pub(super) since: Option<i64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Prepare,
    Execute,
    ExecuteUnnamed,
    Simple,
}

impl Request {
    /// Returns whether the request executes this statement.
    pub(super) fn is(&self, statement: Statement) -> bool {
        self.sql == statement.sql("public")
    }
}

impl PlayedServer {
    /// Makes a connection whose statements are prepared, or are not because of a pooler.
    pub(super) async fn connect(has_pooler: bool) -> (Self, Connected) {
        Self::connect_through(1 << 20, has_pooler).await
    }

    /// As [`connect`](Self::connect), over a connection that holds this number of bytes in each direction.
    pub(super) async fn connect_through(capacity: usize, has_pooler: bool) -> (Self, Connected) {
        let (client, socket) = tokio::io::duplex(capacity);
        let mut server = Self { socket, prepared: HashMap::new(), session: 1 };
        let socket: ServerSocket = Box::new(client);
        let mut config = Config::new();
        let accept = async {
            let length = server.socket.read_i32().await.unwrap();
            server.body(length).await;
            server.send(&[(b'R', &[0; 4]), (b'Z', b"I")]).await;
        };
        let (connected, ()) = join(config.user("app").connect_raw(socket, NoTls), accept).await;
        let (client, mut connection) = connected.unwrap();
        let statements = if has_pooler { &[][..] } else { &Statement::ALL };
        let prepare = try_join_all(statements.iter().map(async |statement| {
            client.prepare_typed(&statement.sql("public"), statement.types()).await
        }));
        let prepare = async { prepare.await.map_err(|error| error::of_connect(&error)) };
        let answer = async {
            for _ in statements {
                let request = server.request().await;
                server.answer(&request, None).await;
            }
        };
        // The connection reads until the last answer was written.
        let prepare = async { join(prepare, answer).await.0 };
        let prepared = driven(&mut connection, prepare).await.unwrap();
        let session = Arc::new(Session { client, prepared, schema: "public".to_owned() });
        let (findings, name) = (findings(), "db:5432".to_owned());
        (
            server,
            Connected {
                session,
                connection,
                findings,
                server: name,
                address: None,
                clock_offset_ms: None,
            },
        )
    }

    /// Waits for the next request.
    pub(super) async fn request(&mut self) -> Request {
        let mut request = Request {
            sql: String::new(),
            kind: Kind::Prepare,
            types: Vec::new(),
            parameters: Vec::new(),
        };
        loop {
            let tag = self.socket.read_u8().await.expect("a request");
            let length = self.socket.read_i32().await.unwrap();
            let body = self.body(length).await;
            let mut texts = body
                .split(|byte| *byte == 0)
                .map(|text| String::from_utf8_lossy(text).into_owned());
            let mut text = || texts.next().unwrap();
            match tag {
                b'P' => {
                    let name = text();
                    request.sql = text();
                    request.types = body[name.len() + request.sql.len() + 2..].to_vec();
                    self.prepared.insert(name, request.sql.clone());
                }
                b'B' => {
                    let portal = text();
                    let name = text();
                    request.parameters = parameters(&body[portal.len() + name.len() + 2..]);
                    request.sql = self.prepared[&name].clone();
                    request.kind =
                        if name.is_empty() { Kind::ExecuteUnnamed } else { Kind::Execute };
                }
                b'Q' => return Request { sql: text(), kind: Kind::Simple, ..request },
                b'S' => return request,
                _ => {}
            }
        }
    }

    /// Waits for the next request that is no ping.
    pub(super) async fn operation(&mut self) -> Request {
        loop {
            let request = self.request().await;
            if !request.is(Statement::Time) {
                return request;
            }
        }
    }

    /// Answers a request, by a row with a number and a rest, or by no row.
    pub(super) async fn answer(
        &mut self,
        request: &Request,
        row: Option<(Option<i64>, Option<i64>)>,
    ) {
        let row = row.map(|(number, rest)| PlayedRow { number, rest, ..PlayedRow::default() });
        self.answer_by(request, row).await;
    }

    /// Answers a request, by this row or by no row.
    pub(super) async fn answer_by(&mut self, request: &Request, row: Option<PlayedRow>) {
        let number = |value: Option<i64>| value.map(|value| value.to_be_bytes().to_vec());
        let text = |value: Option<&str>| value.map(|value| value.as_bytes().to_vec());
        let PlayedRow { number: granted, rest, holder, label, since } = row.unwrap_or_default();
        let row_of_all = [
            ("number", INT8, number(granted)),
            ("rest", INT8, number(rest)),
            ("holder", TEXT, text(holder)),
            ("label", TEXT, text(label)),
            ("since", INT8, number(since)),
            ("session", INT8, number(Some(self.session))),
        ];
        let mut columns = 6_i16.to_be_bytes().to_vec();
        for (name, kind, _) in &row_of_all {
            columns.extend(name.as_bytes());
            columns.extend([0; 7]);
            columns.extend(kind.to_be_bytes());
            columns.extend([0, 8, 255, 255, 255, 255, 0, 1]);
        }
        let values = row.map(|_| {
            let mut values = 6_i16.to_be_bytes().to_vec();
            for (_, _, value) in &row_of_all {
                let length = value.as_ref().map_or(-1, |value| i32::try_from(value.len()).unwrap());
                values.extend(length.to_be_bytes());
                values.extend(value.iter().flatten());
            }
            values
        });
        let described = [(b't', &request.types[..]), (b'T', &columns)];
        let mut messages = Vec::new();
        if matches!(request.kind, Kind::Prepare | Kind::ExecuteUnnamed) {
            messages.push((b'1', &[][..]));
        }
        if matches!(request.kind, Kind::Execute | Kind::ExecuteUnnamed) {
            messages.push((b'2', &[]));
        }
        if matches!(request.kind, Kind::Prepare | Kind::ExecuteUnnamed) {
            messages.extend(described);
        }
        if request.kind != Kind::Prepare {
            messages.extend(values.iter().map(|values| (b'D', &values[..])));
            messages.push((b'C', b"SELECT 1\0"));
        }
        messages.push((b'Z', b"I"));
        self.send(&messages).await;
    }

    /// Answers a request by an error.
    pub(super) async fn fail(&mut self, severity: &str, code: &str) {
        self.fail_in(severity, code, "").await;
    }

    /// Answers a request by an error of this function of the server.
    pub(super) async fn fail_in(&mut self, severity: &str, code: &str, routine: &str) {
        let mut fields = fields(severity, code);
        fields.splice(fields.len() - 1.., format!("R{routine}\0\0").into_bytes());
        self.send(&[(b'E', &fields), (b'Z', b"I")]).await;
    }

    /// Sends a message that is no answer.
    pub(super) async fn notice(&mut self, severity: &str, routine: &str) {
        let mut fields = fields(severity, "01000");
        fields.splice(fields.len() - 1.., format!("R{routine}\0\0").into_bytes());
        self.send(&[(b'N', &fields)]).await;
    }

    /// Notifies a channel.
    pub(super) async fn notify(&mut self, channel: &str) {
        let body = format!("\0\0\0\0{channel}\0\0");
        self.send(&[(b'A', body.as_bytes())]).await;
    }

    async fn body(&mut self, length: i32) -> Vec<u8> {
        let mut body = vec![0; usize::try_from(length - 4).unwrap()];
        self.socket.read_exact(&mut body).await.unwrap();
        body
    }

    async fn send(&mut self, messages: &[(u8, &[u8])]) {
        let mut bytes = Vec::new();
        for (tag, body) in messages {
            bytes.push(*tag);
            bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
            bytes.extend(*body);
        }
        self.socket.write_all(&bytes).await.unwrap();
    }
}

/// Returns the parameters after the names in a message that binds parameters.
fn parameters(body: &[u8]) -> Vec<Option<Vec<u8>>> {
    let number = |at: usize| usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    let start = 2 + 2 * number(0);
    let mut rest = &body[start + 2..];
    let mut next = || {
        let (length, values) = rest.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let (value, others) = values.split_at(length.unwrap_or_default());
        rest = others;
        Some(length.map(|_| value.to_vec()))
    };
    (0..number(start)).map_while(|_| next()).collect()
}

fn fields(severity: &str, code: &str) -> Vec<u8> {
    format!("S{severity}\0V{severity}\0C{code}\0Mthe words of the server\0Dthe token\0\0").into()
}

/// Returns the findings of a durable server that was never promoted.
pub(super) fn findings() -> Findings {
    Findings {
        database: "shop".to_owned(),
        server: (1, 1),
        promoted_ago: None,
        uptime: Duration::from_secs(86_400),
        backend: (1, 1, 1),
        session: 1,
        version: "18.1".to_owned(),
        may_forget: false,
        may_block: false,
    }
}
