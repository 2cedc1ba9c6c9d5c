//! One real sentinel.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::port::Port;
use crate::probe::Probe;
use crate::process::Process;
use crate::redis_server::program;
use crate::scratch::scratch_in_memory;

/// The longest time for a start, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(20);

/// A `redis-server --sentinel` process with its own port and its own directory. Dropping the value ends the process.
#[derive(Debug)]
pub struct Sentinel {
    port: Port,
    /// Set if the configuration has a certificate.
    tls_port: Option<Port>,
    dir: TempDir,
    process: Option<Process>,
    /// The password with which the harness connects.
    password: Option<String>,
}

impl Sentinel {
    /// Starts a sentinel with these lines in its configuration, besides its port and directory, and waits until it
    /// answers. `password` is the one of the default user in that configuration.
    ///
    /// # Panics
    ///
    /// If the sentinel cannot be started.
    pub async fn start(configuration: &str, password: Option<&str>) -> Self {
        redlock_logs::watch();
        loop {
            let port = Port::reserve();
            let tls_port = configuration.contains("tls-cert-file").then(Port::reserve);
            let dir = scratch_in_memory();
            let (number, path) = (port.number(), dir.path().display());
            let tls = tls_port.as_ref().map(|port| format!("tls-port {}\n", port.number()));
            let tls = tls.unwrap_or_default();
            let text = format!("port {number}\nbind 127.0.0.1\ndir {path}\n{configuration}\n{tls}");
            std::fs::write(dir.path().join("sentinel.conf"), text).expect("the configuration");
            let password = password.map(str::to_owned);
            let mut sentinel = Self { port, tls_port, dir, process: None, password };
            match sentinel.launch().await {
                Ok(()) => return sentinel,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("the sentinel did not start: {error}"),
            }
        }
    }

    /// As [`start`](Self::start), with a port for TLS besides. The sentinel connects to the servers by TLS too, and names
    /// them by their host names, as the certificate does.
    ///
    /// # Panics
    ///
    /// If the sentinel cannot be started.
    pub async fn start_tls(configuration: &str, certificate: &Path, key: &Path) -> Self {
        let (certificate, key) = (certificate.display(), key.display());
        let tls = format!(
            "tls-cert-file {certificate}\ntls-key-file {key}\n\
             tls-ca-cert-file {certificate}\ntls-auth-clients no\ntls-replication yes\n\
             sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n{configuration}"
        );
        Self::start(&tls, None).await
    }

    /// Returns the port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the port for TLS, on 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If the configuration has no `tls-cert-file`.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.as_ref().expect("a sentinel that speaks TLS").number()
    }

    /// Connects a [`Probe`] to the sentinel.
    ///
    /// # Panics
    ///
    /// If the sentinel does not answer.
    pub async fn probe(&self) -> Probe {
        self.try_probe().await.expect("a connection to the sentinel")
    }

    async fn try_probe(&self) -> redis::RedisResult<Probe> {
        let password = self.password.as_deref();
        let user = password.map(|password| format!(":{password}@")).unwrap_or_default();
        Probe::connect(&format!("redis://{user}127.0.0.1:{}", self.port())).await
    }

    /// Stops the process (SIGSTOP). The kernel still accepts connections, but the sentinel does not answer.
    pub fn freeze(&mut self) {
        self.process().stop(START).expect("SIGSTOP");
    }

    /// Continues the process (SIGCONT) after [`freeze`](Self::freeze).
    pub fn thaw(&mut self) {
        self.process().signal(Signal::CONT).expect("SIGCONT");
    }

    /// Kills the process (SIGKILL) and waits until it has ended.
    pub fn kill(&mut self) {
        self.process.take().expect("a sentinel that runs").kill();
    }

    /// Starts the sentinel again with the state that it has saved, after [`kill`](Self::kill).
    pub async fn restart(&mut self) {
        let deadline = Instant::now() + START;
        while let Err(error) = self.launch().await {
            assert!(Instant::now() < deadline, "the sentinel did not start again: {error}");
        }
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("a sentinel that runs")
    }

    async fn launch(&mut self) -> io::Result<()> {
        let log = self.dir.path().join("sentinel.log");
        let _ = std::fs::remove_file(&log);
        let configuration = self.dir.path().join("sentinel.conf").into_os_string();
        let arguments = [configuration, "--sentinel".into()];
        let process = Process::start(&program(), arguments, &[], &log)?;
        let id = self.process.insert(process).id();
        let deadline = Instant::now() + START;
        loop {
            // Check the process id too: another process may have taken the port.
            if let Ok(mut probe) = self.try_probe().await
                && let Ok(answering) = probe.process_id().await
            {
                if answering == id {
                    return Ok(());
                }
                self.process = None;
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let has_ended = match &mut self.process {
                Some(process) => process.ended()?.is_some(),
                None => true,
            };
            if has_ended || Instant::now() >= deadline {
                self.process = None;
                let log = std::fs::read_to_string(log)?;
                let is_taken = log.contains("in use");
                return Err(if is_taken {
                    io::ErrorKind::AddrInUse.into()
                } else {
                    io::Error::other(log)
                });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
