//! A child process that ends with the test process, even when the test process is killed.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The guard script. It starts the program, and kills it when standard input ends. The kernel closes that pipe when this
/// process dies for any reason. The kernel also sends SIGHUP to the guard's group if the program is stopped at that time.
///
/// Arguments: log file, program and its arguments. The script prints the program's pid.
const GUARD: &str = r#"
log=$1; shift
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
pid=$!
trap '' HUP
echo "$pid"
(read -r _ <&3; kill -KILL "$pid") 2>/dev/null &
guard=$!
wait "$pid"; code=$?
kill "$guard" 2>/dev/null
exit "$code"
"#;

/// A program that runs under the guard script.
#[derive(Debug)]
pub(crate) struct Process {
    guard: Child,
    /// The guard kills the program when this pipe ends.
    pipe: Option<ChildStdin>,
    pid: Pid,
}

impl Process {
    /// Starts `program`, with its output appended to `log`.
    pub(crate) fn start<I, A>(
        program: &OsStr,
        arguments: I,
        environment: &[(&str, String)],
        log: &Path,
    ) -> io::Result<Self>
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        let mut guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "guard"])
            .arg(log)
            .arg(program)
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // A signal to the group of this process, such as by Ctrl-C, must not end the guard before the program.
            .process_group(0)
            .spawn()?;
        let pipe = guard.stdin.take();
        let mut line = String::new();
        if let Some(output) = guard.stdout.take() {
            BufReader::new(output.take(64)).read_line(&mut line)?;
        }
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            drop(pipe);
            guard.wait()?;
            return Err(io::Error::other(format!("{} did not start", program.display())));
        };
        Ok(Self { guard, pipe, pid })
    }

    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Sends SIGSTOP and waits until the kernel has stopped the program.
    pub(crate) fn stop(&self, within: Duration) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + within;
        while !self.is_stopped() {
            if Instant::now() > deadline {
                return Err(io::Error::other("the program did not stop"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Returns the exit status of the program; `None` while it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.guard.try_wait()
    }

    /// Returns whether the kernel has stopped the program. SIGSTOP takes effect some time after it was sent.
    fn is_stopped(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).map_or_else(
            |_| {
                let ps = Command::new("ps")
                    .args(["-o", "state=", "-p", &self.id().to_string()])
                    .output();
                ps.map(|ps| String::from_utf8_lossy(&ps.stdout).trim().to_owned())
                    .unwrap_or_default()
            },
            // The state follows the name, which is in parentheses and may contain any character.
            |stat| stat.rsplit(')').next().unwrap_or_default().trim_start().to_owned(),
        );
        state.starts_with(['T', 't'])
    }

    /// Sends SIGKILL and waits until the program is gone. Its files stay.
    pub(crate) fn kill(self) {
        // Closes the pipe and waits.
        drop(self);
    }

    /// Waits for the program to end by itself. Returns `None` if it still runs after `within`.
    pub(crate) fn wait(&mut self, within: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The guard kills the program, even a stopped one, and ends. A destructor cannot return an error.
        let _ = self.guard.wait();
    }
}
