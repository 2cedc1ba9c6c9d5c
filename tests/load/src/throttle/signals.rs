//! Throttling by SIGSTOP and SIGCONT.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const RUNS: Duration = Duration::from_millis(20);
const STANDS: Duration = Duration::from_millis(80);

/// Stops a process for four fifths of the time until this is dropped.
#[derive(Debug)]
pub(super) struct Signals {
    /// Dropped first, which ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    pub(super) fn begin(id: i32) -> io::Result<Self> {
        let process = Pid::from_raw(id).ok_or(io::ErrorKind::InvalidInput)?;
        kill_process(process, Signal::STOP)?;
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let pause = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            let mut stop = true;
            loop {
                let goes_on = pause(if stop { STANDS } else { RUNS });
                stop = goes_on && !stop;
                let signal = if stop { Signal::STOP } else { Signal::CONT };
                // The process may have ended.
                if kill_process(process, signal).is_err() || !goes_on {
                    return;
                }
            }
        });
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic, and its last signal lets the process go on.
            let _ = thread.join();
        }
    }
}
