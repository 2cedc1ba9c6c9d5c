//! A server that a test plays from the handshake on. It answers the commands of a [`Server`](super::Server) as Redis does.

use std::fmt::Write;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
    DuplexStream, ReadBuf,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::kit::dial::{Dial, Dialing, Stream};

/// The replies and the behaviour of the played server.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) run_id: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) uptime: Duration,
    pub(crate) role: &'static str,
    pub(crate) replication_id: &'static str,
    pub(crate) former_replication_id: &'static str,
    /// How far the wall clock is ahead of the clock of the test.
    pub(crate) clock: Duration,
    /// Whether the server accepts connections.
    pub(crate) is_listening: bool,
    /// While it is set, the server answers nothing.
    pub(crate) is_silent: bool,
    /// The error of a server that does not execute `INFO` and `TIME`.
    pub(crate) refusal: Option<&'static str>,
    pub(crate) subscriptions: Subscriptions,
    /// The commands that the check of the rights finds to be missing. `None` if the reply to the check is not understood.
    pub(crate) missing: Option<&'static [&'static str]>,
    /// The command at which a proxy in front of the server ends the connection.
    pub(crate) ends_at: Option<&'static str>,
    /// The number of times that the server has closed all connections.
    closed: u64,
}

/// The rules of a server for a connection with a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subscriptions {
    Resp3,
    /// A confirmation is an array, and other commands are refused (fakeredis 2.41).
    Resp2,
    /// A confirmation is a push, and other commands are refused (miniredis 2.40).
    Alone,
}

/// An attempt to connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) at: Instant,
    /// Whether the client still had an earlier connection.
    pub(crate) has_another: bool,
}

/// A server that the test plays. It is a master that has run for long.
#[derive(Debug, Clone)]
pub(crate) struct PlayedRedis(Arc<State>);

#[derive(Debug)]
struct State {
    begun: Instant,
    fields: watch::Sender<Fields>,
    attempts: watch::Sender<Vec<Attempt>>,
    /// The number of connections that neither side has closed.
    connections: watch::Sender<usize>,
    /// The names of the answered commands.
    answered: Mutex<Vec<String>>,
    /// Each open connection of a client has a clone.
    open: Arc<()>,
}

impl PlayedRedis {
    pub(crate) fn new() -> Self {
        let fields = Fields {
            run_id: "first",
            mode: "standalone",
            uptime: Duration::from_secs(1_000_000),
            role: "master",
            replication_id: "aaaa",
            former_replication_id: "0000",
            clock: Duration::from_secs(1_700_000_000),
            is_listening: true,
            is_silent: false,
            refusal: None,
            subscriptions: Subscriptions::Resp3,
            missing: None,
            ends_at: None,
            closed: 0,
        };
        Self(Arc::new(State {
            begun: Instant::now(),
            fields: watch::Sender::new(fields),
            attempts: watch::Sender::new(Vec::new()),
            connections: watch::Sender::new(0),
            answered: Mutex::default(),
            open: Arc::default(),
        }))
    }

    /// Changes what the server reports from now on.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Fields)) {
        self.0.fields.send_modify(change);
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.change(|fields| fields.closed += 1);
    }

    /// Returns the attempts to connect, and their changes.
    pub(crate) fn attempts(&self) -> watch::Receiver<Vec<Attempt>> {
        self.0.attempts.subscribe()
    }

    /// Returns the number of connections, and its changes.
    pub(crate) fn connections(&self) -> watch::Receiver<usize> {
        self.0.connections.subscribe()
    }

    /// Returns the names of the commands that the server has answered.
    pub(crate) fn answered(&self) -> Vec<String> {
        self.0.answered.lock().clone()
    }

    /// Listens on a port of this machine, which is returned.
    pub(crate) async fn listen(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.attempted();
                tokio::spawn(server.clone().serve(stream));
            }
        });
        port
    }

    fn attempted(&self) {
        let attempt =
            Attempt { at: Instant::now(), has_another: Arc::strong_count(&self.0.open) > 1 };
        self.0.attempts.send_modify(|attempts| attempts.push(attempt));
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite) {
        let mut fields = self.0.fields.subscribe();
        let closed = fields.borrow().closed;
        self.0.connections.send_modify(|count| *count += 1);
        tokio::select! {
            biased;
            _ = fields.wait_for(|fields| fields.closed > closed) => {}
            // The client has closed the connection.
            _ = self.answer_all(stream) => {}
        }
        self.0.connections.send_modify(|count| *count -= 1);
    }

    async fn answer_all(&self, stream: impl AsyncRead + AsyncWrite) -> io::Result<()> {
        let (reader, mut writer) = tokio::io::split(stream);
        let (mut reader, mut fields) = (BufReader::new(reader), self.0.fields.subscribe());
        let mut has_subscription = false;
        loop {
            let command = read_command(&mut reader).await?;
            let answer = match fields.wait_for(|fields| !fields.is_silent).await {
                Ok(fields) if fields.ends_at == Some(&*command[0]) => return Ok(()),
                Ok(fields) => {
                    match &*command[0] {
                        "SUBSCRIBE" => has_subscription = true,
                        "UNSUBSCRIBE" => has_subscription = false,
                        _ => {}
                    }
                    let is_refused = has_subscription
                        && command[0] != "SUBSCRIBE"
                        && fields.subscriptions != Subscriptions::Resp3;
                    if is_refused {
                        "-ERR only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT allowed in this context\r\n"
                            .to_owned()
                    } else {
                        self.answer(&command, &fields)
                    }
                }
                Err(_) => return Ok(()),
            };
            self.0.answered.lock().push(command[0].clone());
            writer.write_all(answer.as_bytes()).await?;
        }
    }

    fn answer(&self, command: &[String], fields: &Fields) -> String {
        match &*command[0] {
            "TIME" | "INFO" if fields.refusal.is_some() => {
                format!("-{}\r\n", fields.refusal.unwrap_or_default())
            }
            "HELLO" | "CLIENT" | "SET" | "ASKING" => "+OK\r\n".to_owned(),
            // The check of the rights has no keys.
            "EVALSHA" if command[2] == "0" => match fields.missing {
                Some(missing) => {
                    let error = bulk("ERR Unknown command called from script");
                    let errors = missing.iter().map(|name| bulk(name) + &error);
                    format!("*{}\r\n{}", 2 * missing.len(), errors.collect::<String>())
                }
                None => ":1\r\n".to_owned(),
            },
            "EVALSHA" | "DELIFEQ" | "DELEX" | "MSETEX" => ":1\r\n".to_owned(),
            "PUBLISH" => ":0\r\n".to_owned(),
            "SCRIPT" => bulk("digest"),
            "SUBSCRIBE" | "UNSUBSCRIBE" => {
                let sign = if fields.subscriptions == Subscriptions::Resp2 { '*' } else { '>' };
                format!(
                    "{sign}3\r\n{}{}:1\r\n",
                    bulk(&command[0].to_lowercase()),
                    bulk(&command[1])
                )
            }
            "CONFIG" => format!("*2\r\n{}{}", bulk(&command[2]), bulk("10")),
            "TIME" => {
                let time = self.0.begun.elapsed() + fields.clock;
                let (seconds, micros) = (time.as_secs(), time.subsec_micros());
                format!("*2\r\n{}{}", bulk(&seconds.to_string()), bulk(&micros.to_string()))
            }
            "INFO" => {
                let mut info = String::new();
                for (name, value) in [
                    ("run_id", fields.run_id),
                    ("redis_mode", fields.mode),
                    ("uptime_in_seconds", &fields.uptime.as_secs().to_string()),
                    ("maxmemory_policy", "noeviction"),
                    ("role", fields.role),
                    ("min_slaves_good_slaves", "1"),
                    ("master_replid", fields.replication_id),
                    ("master_replid2", fields.former_replication_id),
                ] {
                    write!(info, "{name}:{value}\r\n").unwrap();
                }
                bulk(&info)
            }
            unknown => format!("-ERR unknown command '{unknown}'\r\n"),
        }
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Reads a command: `*2`, and the length and the text of each argument.
async fn read_command(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<String>> {
    let mut command = Vec::new();
    for _ in 0..read_number(reader).await? {
        let mut text = vec![0; read_number(reader).await? + "\r\n".len()];
        reader.read_exact(&mut text).await?;
        command.push(String::from_utf8_lossy(&text).trim_end().to_owned());
    }
    Ok(command)
}

/// Reads a line whose first character is its type.
async fn read_number(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let number = line.get(1..).ok_or(io::ErrorKind::UnexpectedEof)?;
    number.trim_end().parse().map_err(io::Error::other)
}

impl Dial for PlayedRedis {
    fn open(&self) -> Dialing {
        self.attempted();
        if !self.0.fields.borrow().is_listening {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        }
        let (client, server) = tokio::io::duplex(64 * 1024);
        tokio::spawn(self.clone().serve(server));
        let stream: Box<dyn Stream> =
            Box::new(Client { stream: client, _open: Arc::clone(&self.0.open) });
        Box::pin(async { Ok(stream) })
    }
}

/// The connection of a client.
#[derive(Debug)]
struct Client {
    stream: DuplexStream,
    _open: Arc<()>,
}

impl Stream for Client {}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
