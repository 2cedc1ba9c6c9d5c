//! Collecting log lines, and searching them for secrets.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use crate::secrets::find_secret;

thread_local! {
    /// The log output of this thread since [`Logs::collect`]; `None` while no test collects.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// Whether the test of this thread expects a warning of the order of locks.
    static EXPECTS_ORDER: Cell<bool> = const { Cell::new(false) };
}

/// The warnings of the order of locks.
const ORDER: [&str; 2] =
    ["requests take locks in different orders", "a request waits for a second lock of a name"];

static BEGUN: Once = Once::new();
/// Whether warnings and errors are printed.
static PRINTS: AtomicBool = AtomicBool::new(false);

/// Returns whether a line of a log is a warning of the order of locks. No test but those of the warning takes locks in
/// different orders, so any other one is a false alarm.
pub fn is_lock_order_warning(line: &str) -> bool {
    line.contains("WARN") && ORDER.iter().any(|text| line.contains(text))
}

/// Switches the search of [`watch`] off, in a program that measures time: formatting each event takes as long as a
/// hand-over. Call it before everything else.
pub fn do_not_watch() {
    BEGUN.call_once(|| {});
}

/// Starts to search every log line of this process for passwords and tokens, at every level and from
/// every library. A secret aborts the process, because a panic could get lost in a background task. So does a warning of the
/// order of locks that no test [expects](Logs::expect_lock_order).
///
/// # Panics
///
/// If the process already has another subscriber.
pub fn watch() {
    // One subscriber for the whole process. Subscribers of single threads, set and removed by tests that
    // run in parallel, would race for the caches of `tracing`.
    BEGUN.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(|| Watch)
            .init();
        // `tracing` may have disabled a log statement for ever that another thread reached meanwhile. Another
        // dispatcher makes `tracing` ask again.
        drop(Dispatch::new(NoSubscriber::default()));
    });
}

/// Collects the log lines of the current thread, at every level, until the value is dropped. It does
/// not see other threads, so use it in a test whose runtime has one thread.
#[derive(Debug)]
pub struct Logs {
    /// Makes the type `!Send`: the collected lines belong to one thread.
    _of_thread: PhantomData<*const ()>,
}

impl Logs {
    /// Starts to collect, and calls [`watch`].
    ///
    /// # Panics
    ///
    /// If this thread already collects.
    pub fn collect() -> Self {
        watch();
        let before = LOGGED.replace(Some(Vec::new()));
        assert!(before.is_none(), "this thread already collects its logs");
        Self { _of_thread: PhantomData }
    }

    /// Expects warnings of the order of locks in this thread, as long as it collects.
    #[must_use]
    pub fn expect_lock_order(self) -> Self {
        EXPECTS_ORDER.set(true);
        self
    }

    /// Returns the lines collected so far.
    pub fn lines(&self) -> Vec<String> {
        let logged = LOGGED.with_borrow(|logged| logged.clone().unwrap_or_default());
        String::from_utf8_lossy(&logged).lines().map(str::to_owned).collect()
    }

    /// Counts the lines of a level, such as `"WARN"`, that contain `text`.
    pub fn count(&self, level: &str, text: &str) -> usize {
        let lines = self.lines();
        // The formatter pads short level names on the left.
        let of_level = lines.iter().filter(|line| line.trim_start().starts_with(level));
        of_level.filter(|line| line.contains(text)).count()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        LOGGED.set(None);
        EXPECTS_ORDER.set(false);
    }
}

/// Calls [`watch`], and prints warnings and errors of all threads to standard error, for a service whose test reads them.
///
/// # Panics
///
/// If the process already has another subscriber.
pub fn watch_and_print() {
    PRINTS.store(true, Ordering::SeqCst);
    watch();
}

#[derive(Debug, Clone, Copy)]
struct Watch;

impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if find_secret(&line).is_some() {
            // The test runner captures `eprintln`, and would lose the message at the abort.
            let _ = writeln!(io::stderr(), "a secret was logged: {line}");
            std::process::abort();
        }
        let is_warning = ["WARN", "ERROR"].iter().any(|level| line.trim_start().starts_with(level));
        if is_lock_order_warning(&line) && !EXPECTS_ORDER.get() {
            let _ = writeln!(io::stderr(), "a warning that no test expects: {line}");
            std::process::abort();
        }
        if is_warning && PRINTS.load(Ordering::SeqCst) {
            io::stderr().write_all(bytes)?;
        }
        LOGGED.with_borrow_mut(|logged| {
            logged.as_mut().map(|logged| logged.extend_from_slice(bytes))
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
