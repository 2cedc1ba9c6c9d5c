//! A server whose replies a test replaces.

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::redis_server::RedisServer;

/// What a played server does with a command.
#[derive(Debug, Clone)]
pub enum Play {
    /// The real server executes the command, and its reply follows.
    Pass,
    /// The real server executes the command. These bytes precede its reply.
    Precede(String),
    /// These bytes are the reply. The real server does not get the command.
    Reply(String),
    /// The first bytes are sent once, then the others again and again, with a pause between. No other reply follows.
    Repeat(String, String, Duration),
}

/// A command of a client.
#[derive(Debug, Clone)]
pub struct Command {
    /// The words of the command.
    pub words: Vec<String>,
    /// The number of the connection: 1 for the first one of the server.
    pub connection: usize,
}

impl Command {
    /// Returns whether the command begins with these words.
    pub fn is(&self, words: &[&str]) -> bool {
        self.words.len() >= words.len()
            && self.words.iter().zip(words).all(|(word, expected)| word == expected)
    }
}

type Script = Arc<dyn Fn(&Command) -> Play + Send + Sync>;

/// A server in front of a real one. It speaks RESP3 with its clients, and the test decides about each command: whether
/// the real server executes it, and what the client receives.
///
/// Clients cannot subscribe: their subscriptions are confirmed, and never get a message.
pub struct PlayedServer {
    port: u16,
    shared: Arc<Shared>,
    _end: DropGuard,
}

struct Shared {
    /// The URL of the real server.
    url: String,
    script: Mutex<Script>,
    commands: Mutex<Vec<Command>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    /// Whether the server closes new connections at once.
    is_away: AtomicBool,
    is_held: watch::Sender<bool>,
    /// Ends all connections when it changes.
    reset: watch::Sender<()>,
    end: CancellationToken,
}

impl std::fmt::Debug for PlayedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlayedServer").field("port", &self.port).finish_non_exhaustive()
    }
}

impl PlayedServer {
    /// Starts a server in front of a real one. At first, the real server executes every command.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn before(server: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            url: server.url(),
            script: Mutex::new(Arc::new(|_| Play::Pass)),
            commands: Mutex::default(),
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            is_held: watch::Sender::new(false),
            reset: watch::Sender::new(()),
            end: end.clone(),
        });
        tokio::spawn(end.clone().run_until_cancelled_owned(listen(Arc::clone(&shared), listener)));
        Self { port, shared, _end: end.drop_guard() }
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of this server.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Decides about every command from now on.
    pub fn play(&self, script: impl Fn(&Command) -> Play + Send + Sync + 'static) {
        *lock(&self.shared.script) = Arc::new(script);
    }

    /// Executes commands and holds their replies back, until this is called with `false`.
    pub fn hold_replies(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    /// Ends all connections and closes each new one at once, until this is called with `false`.
    pub fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::SeqCst);
        if is_away {
            self.shared.reset.send_replace(());
        }
    }

    /// Returns the commands so far that begin with these words.
    pub fn commands(&self, words: &[&str]) -> Vec<Command> {
        let commands = lock(&self.shared.commands);
        commands.iter().filter(|command| command.is(words)).cloned().collect()
    }

    /// Returns how many connections the server has accepted, also those that it has closed at once.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Returns how many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    while let Ok((client, _)) = listener.accept().await {
        let connection = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        if shared.is_away.load(Ordering::SeqCst) {
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut reset = shared.reset.subscribe();
            shared.open.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                _ = serve(&shared, client, connection) => {}
                _ = reset.changed() => {}
                () = shared.end.cancelled() => {}
            }
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Serves a client until one side ends the connection.
async fn serve(shared: &Shared, client: TcpStream, connection: usize) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (reader, writer) = client.into_split();
    let (replies, queue) = mpsc::unbounded_channel();
    let real = redis::Client::open(&*shared.url).map_err(io::Error::other)?;
    let real = real.get_multiplexed_async_connection().await.map_err(io::Error::other)?;
    tokio::select! {
        ended = execute(shared, BufReader::new(reader), real, connection, replies) => ended,
        ended = write(shared, writer, queue) => ended,
    }
}

/// What follows in the stream to a client: these bytes, and then perhaps others without an end.
type Reply = (String, Option<(String, Duration)>);

/// Executes the commands of a client, one after another.
async fn execute(
    shared: &Shared,
    mut client: BufReader<OwnedReadHalf>,
    mut real: MultiplexedConnection,
    connection: usize,
    replies: mpsc::UnboundedSender<Reply>,
) -> io::Result<()> {
    loop {
        let words = read_command(&mut client).await?;
        let text = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
        let command = Command { words: text.collect(), connection };
        lock(&shared.commands).push(command.clone());
        let script = Arc::clone(&lock(&shared.script));
        let reply = match script(&command) {
            Play::Pass => (usual_reply(&command, &words, &mut real).await?, None),
            Play::Precede(bytes) => {
                (bytes + &usual_reply(&command, &words, &mut real).await?, None)
            }
            Play::Reply(bytes) => (bytes, None),
            Play::Repeat(first, again, pause) => (first, Some((again, pause))),
        };
        // Fails if the client is gone.
        let _ = replies.send(reply);
    }
}

/// Reads one command: an array of bulk strings.
async fn read_command(client: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..read_length(client).await? {
        let mut word = vec![0; read_length(client).await? + 2];
        client.read_exact(&mut word).await?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Ok(words)
}

/// Reads the length of an array or of a bulk string.
async fn read_length(client: &mut BufReader<OwnedReadHalf>) -> io::Result<usize> {
    let mut line = String::new();
    client.read_line(&mut line).await?;
    line.get(1..)
        .and_then(|digits| digits.trim().parse().ok())
        .ok_or(io::ErrorKind::UnexpectedEof.into())
}

/// Returns the reply of the real server, or of this one if the command concerns the connection of the client.
async fn usual_reply(
    command: &Command,
    words: &[Vec<u8>],
    real: &mut MultiplexedConnection,
) -> io::Result<String> {
    let reply = match command.words[0].as_str() {
        "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
        "CLIENT" | "SELECT" | "ASKING" => "+OK\r\n".to_owned(),
        kind @ ("SUBSCRIBE" | "UNSUBSCRIBE") => {
            let kind = kind.to_lowercase();
            let confirmation = |channel| format!(">3\r\n{}{}:1\r\n", bulk(&kind), bulk(channel));
            command.words[1..]
                .iter()
                .map(String::as_str)
                .map(confirmation)
                .collect::<Vec<_>>()
                .concat()
        }
        _ => {
            let mut forwarded = redis::Cmd::new();
            for word in words {
                forwarded.arg(word);
            }
            let reply = real.send_packed_command(&forwarded).await;
            return reply.map(|reply| encoded(&reply)).map_err(io::Error::other);
        }
    };
    Ok(reply)
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Encodes a reply of the real server, which speaks RESP2 with this one.
fn encoded(reply: &Value) -> String {
    match reply {
        Value::Nil => "_\r\n".to_owned(),
        Value::Okay => "+OK\r\n".to_owned(),
        Value::Int(number) => format!(":{number}\r\n"),
        Value::SimpleString(text) => format!("+{text}\r\n"),
        Value::BulkString(bytes) => bulk(&String::from_utf8_lossy(bytes)),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(encoded).collect();
            format!("*{}\r\n{}", items.len(), items.concat())
        }
        Value::ServerError(error) => {
            format!("-{} {}\r\n", error.code(), error.details().unwrap_or_default())
        }
        other => panic!("{other:?} is no reply of RESP2"),
    }
}

/// Writes the replies to a client.
async fn write(
    shared: &Shared,
    mut client: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Reply>,
) -> io::Result<()> {
    let mut is_held = shared.is_held.subscribe();
    let mut send = async |text: &str| {
        // The sender lives as long as the server.
        let _ = is_held.wait_for(|is_held| !is_held).await;
        client.write_all(text.as_bytes()).await
    };
    while let Some((bytes, endless)) = queue.recv().await {
        send(&bytes).await?;
        if let Some((again, pause)) = endless {
            loop {
                send(&again).await?;
                tokio::time::sleep(pause).await;
            }
        }
    }
    Ok(())
}
