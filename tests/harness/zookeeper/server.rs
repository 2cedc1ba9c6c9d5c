//! A Java process with a server of ZooKeeper.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::MEASURED;
use crate::java::{QUICK, class_path};
use crate::port::Port;
use crate::process::Process;
use crate::scratch::{scratch, scratch_in_memory};

/// The longest time for a start or an end, on a machine that is busy with other tests.
pub(super) const START: Duration = Duration::from_secs(60);
/// The longest time for an answer to `srvr`.
const ANSWER: Duration = Duration::from_secs(2);

/// A process with its own port and its own data.
#[derive(Debug)]
pub(super) struct Server {
    // Dropped first: the process ends before its files disappear.
    process: Option<Process>,
    class: &'static str,
    /// Options of Java.
    options: Vec<String>,
    settings: Vec<(String, String)>,
    pub(super) port: Port,
    dir: TempDir,
    frozen: bool,
}

impl Server {
    /// Prepares a process, which [`launch`](Self::launch) starts. The settings are lines of `zoo.cfg`.
    pub(super) fn new(
        class: &'static str,
        options: &[String],
        mut settings: Vec<(String, String)>,
    ) -> Self {
        redlock_logs::watch();
        let is_measured = options.iter().any(|option| MEASURED.contains(&option.as_str()));
        let dir = if is_measured { scratch() } else { scratch_in_memory() };
        if is_measured {
            // It waits for its disk. The last line of a setting wins.
            settings.push(("forceSync".to_owned(), "yes".to_owned()));
        }
        let port = Port::reserve();
        Self { process: None, class, options: options.to_vec(), settings, port, dir, frozen: false }
    }

    /// Writes the id of a member of an ensemble.
    pub(super) fn set_id(&self, id: usize) {
        let data = self.dir.path().join("data");
        std::fs::create_dir_all(&data).expect("a folder");
        std::fs::write(data.join("myid"), id.to_string()).expect("the id of a server");
    }

    /// Starts the process.
    pub(super) fn launch(&mut self) -> io::Result<()> {
        let dir = self.dir.path();
        let log = dir.join("log");
        // The search for an error must not find messages of an earlier start.
        let _ = std::fs::remove_file(&log);
        let mut configuration = format!(
            "dataDir={}/data\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\nforceSync=no\npreAllocSize=1024\n4lw.commands.whitelist=srvr\n",
            dir.display(),
            self.port.number()
        );
        for (name, value) in &self.settings {
            let _ = writeln!(configuration, "{name}={value}");
        }
        std::fs::write(dir.join("zoo.cfg"), configuration)?;
        // In its folder, where `tests/run.sh` finds the servers that tests left behind.
        let mut arguments: Vec<OsString> = vec!["-c".into(), "cd \"$0\" && exec \"$@\"".into()];
        arguments.extend([dir.as_os_str().to_owned(), "java".into()]);
        arguments.extend(QUICK.map(OsString::from));
        arguments.extend(self.options.iter().map(OsString::from));
        arguments.push("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn".into());
        let path = class_path("curator").map_err(io::Error::other)?;
        arguments.extend(["-cp".into(), path.into(), self.class.into(), "./zoo.cfg".into()]);
        self.process = Some(Process::start("/bin/sh".as_ref(), arguments, &[], &log)?);
        self.frozen = false;
        Ok(())
    }

    /// Waits until the server answers.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START;
        while self.srvr().await.is_none() {
            let ended = self.process.as_mut().map(Process::ended).transpose()?.flatten();
            if ended.is_some() || Instant::now() >= deadline {
                self.process = None;
                let log = std::fs::read_to_string(self.dir.path().join("log"))?;
                return Err(if log.contains("Address already in use") {
                    io::ErrorKind::AddrInUse.into()
                } else {
                    io::Error::other(log)
                });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Starts the process on the same port with the same data, and waits until the server answers.
    pub(super) async fn restart(&mut self) {
        self.process = None;
        let deadline = Instant::now() + START;
        loop {
            self.launch().expect("a process");
            match self.ready().await {
                Ok(()) => return,
                Err(error) => {
                    let is_taken = error.kind() == io::ErrorKind::AddrInUse;
                    assert!(is_taken && Instant::now() < deadline, "no restart: {error}");
                }
            }
        }
    }

    /// Returns the answer to the command `srvr`; `None` if the server does not serve clients.
    pub(super) async fn srvr(&self) -> Option<String> {
        let answer = async {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number())).await?;
            stream.write_all(b"srvr").await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            io::Result::Ok(text)
        };
        let answer = tokio::time::timeout(ANSWER, answer).await.ok()?.ok()?;
        answer.contains("Mode: ").then_some(answer)
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_some() && !self.frozen
    }

    pub(super) fn freeze(&mut self) {
        self.process().stop(START).expect("SIGSTOP");
        self.frozen = true;
    }

    pub(super) fn thaw(&mut self) {
        self.process().signal(rustix::process::Signal::CONT).expect("SIGCONT");
        self.frozen = false;
    }

    pub(super) fn kill(&mut self) {
        self.process.take().expect("a server that runs").kill();
        self.frozen = false;
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a server that runs")
    }
}
