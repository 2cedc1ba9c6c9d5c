//! A real server, with which the simulated server is compared.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bb8_redis::redis::{Parser, Value};

use super::comparison::Subject;
use super::resp::{Request, encoded};

/// The longest time for a start or an answer of the server on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `redis-server` process on a Unix socket. The process ends when this is dropped.
pub(super) struct RealServer {
    process: Child,
    directory: PathBuf,
    connections: BTreeMap<char, (UnixStream, Parser)>,
}

impl RealServer {
    /// Starts the program that `REDIS_SERVER` names, or `redis-server`. If the program cannot be started,
    /// prints that the comparison is skipped and returns `None`; in CI, panics instead.
    pub(super) fn start() -> Option<Self> {
        let program = std::env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let name = format!("redlock-simulation-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a directory for the server");
        let process = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(directory.join("redis.sock"))
            .arg("--dir")
            .arg(&directory)
            .stdout(Stdio::null())
            .stdin(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                let program = program.display();
                let words = format!(
                    "SKIPPED: {program} cannot be started ({error}), so the simulated server is not \
                     compared with a real one"
                );
                let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
                assert!(!in_ci, "{words}");
                eprintln!("{words}");
                return None;
            }
        };
        Some(Self { process, directory, connections: BTreeMap::new() })
    }

    fn connect(&mut self) -> (UnixStream, Parser) {
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(self.directory.join("redis.sock")) {
                Ok(stream) => break stream,
                Err(error) => {
                    let ended = self.process.try_wait().expect("the state of the process");
                    assert!(ended.is_none(), "the server process has ended: {ended:?}");
                    assert!(begun.elapsed() < PATIENCE, "no server after {PATIENCE:?}: {error}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        (stream, Parser::new())
    }

    fn connection(&mut self, connection: char) -> &mut (UnixStream, Parser) {
        if !self.connections.contains_key(&connection) {
            let new = self.connect();
            self.connections.insert(connection, new);
            let hello = ["HELLO", "3"].map(|word| word.as_bytes().to_vec());
            self.send(connection, &hello.to_vec());
            let greeting = self.receive(connection);
            assert!(matches!(greeting, Value::Map(_)), "{greeting:?}");
        }
        self.connections.get_mut(&connection).expect("just connected")
    }
}

impl Subject for RealServer {
    fn begin(&mut self) {
        self.connections.clear();
        for request in [["FLUSHALL", "SYNC"], ["SCRIPT", "FLUSH"]] {
            self.send('a', &request.map(|word| word.as_bytes().to_vec()).to_vec());
            assert_eq!(self.receive('a'), Value::Okay);
        }
    }

    fn send(&mut self, connection: char, request: &Request) {
        let (stream, _) = self.connection(connection);
        stream.write_all(&encoded(request)).expect("a server that reads requests");
    }

    fn receive(&mut self, connection: char) -> Value {
        let (stream, parser) = self.connection(connection);
        parser.parse_value(stream).expect("an answer")
    }

    fn wait(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn now(&self) -> Duration {
        // The server runs on this machine.
        SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970")
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
