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
/// Children that are stopped continue, so that they notice the end of the program.
///
/// Arguments: log file, program and its arguments. The script prints the program's pid.
const GUARD: &str = r#"
log=$1; shift
exec 3<&0
"$@" </dev/null >>"$log" 2>&1 3<&- &
pid=$!
trap '' HUP
echo "$pid"
(read -r _ <&3; kill -CONT $(pgrep -P "$pid"); kill -KILL "$pid") 2>/dev/null &
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
        wait_for(&[self.pid], within, is_stopped)
    }

    /// Returns the exit status of the program; `None` while it runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.guard.try_wait()
    }

    /// As [`stop`](Self::stop), also for the children of the program.
    pub(crate) fn stop_with_children(&self, within: Duration) -> io::Result<()> {
        // A program that is stopped starts no other child.
        self.stop(within)?;
        let children = self.signal_children(Signal::STOP)?;
        wait_for(&children, within, |state| is_stopped(state) || has_ended(state))
    }

    /// Sends SIGCONT to the program and its children.
    pub(crate) fn continue_with_children(&self) -> io::Result<()> {
        self.signal_children(Signal::CONT)?;
        self.signal(Signal::CONT)
    }

    /// Kills the program and waits until its children have ended. They end by themselves.
    pub(crate) fn kill_with_children(self, within: Duration) -> io::Result<()> {
        self.stop(within)?;
        let children = self.children()?;
        self.kill();
        wait_for(&children, within, has_ended)
    }

    /// Sends a signal to the children of the program. Returns their ids.
    fn signal_children(&self, signal: Signal) -> io::Result<Vec<Pid>> {
        let children = self.children()?;
        for child in &children {
            // A child may have ended.
            let _ = kill_process(*child, signal);
        }
        Ok(children)
    }

    fn children(&self) -> io::Result<Vec<Pid>> {
        let output = Command::new("pgrep").args(["-P", &self.id().to_string()]).output()?;
        let output = String::from_utf8_lossy(&output.stdout);
        Ok(output.lines().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect())
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

/// Waits until each process has a state. A signal takes effect some time after it was sent.
fn wait_for(processes: &[Pid], within: Duration, has: fn(&str) -> bool) -> io::Result<()> {
    let deadline = Instant::now() + within;
    while !processes.iter().all(|process| has(&state(*process))) {
        if Instant::now() > deadline {
            return Err(io::Error::other("a process did not stop or end"));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns the state that the kernel reports for a process; empty if there is no such process.
fn state(process: Pid) -> String {
    let id = process.as_raw_nonzero();
    std::fs::read_to_string(format!("/proc/{id}/stat")).map_or_else(
        |_| {
            let ps = Command::new("ps").args(["-o", "state=", "-p", &id.to_string()]).output();
            ps.map(|ps| String::from_utf8_lossy(&ps.stdout).trim().to_owned()).unwrap_or_default()
        },
        // The state follows the name, which is in parentheses and may contain any character.
        |stat| stat.rsplit(')').next().unwrap_or_default().trim_start().to_owned(),
    )
}

fn is_stopped(state: &str) -> bool {
    state.starts_with(['T', 't'])
}

/// A process that has ended stays a zombie until its parent asks for its status.
fn has_ended(state: &str) -> bool {
    state.is_empty() || state.starts_with('Z')
}

/// Returns whether a process has ended.
#[cfg(test)]
pub(crate) fn is_gone(process: Pid) -> bool {
    has_ended(&state(process))
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The guard kills the program, even a stopped one, and ends. A destructor cannot return an error.
        let _ = self.guard.wait();
    }
}
