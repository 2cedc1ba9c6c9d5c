//! The command on a terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use redlock_tests::{RedisServer, connect, eventually, redlock};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{KEY, SOON, held};

/// The key Ctrl-C.
const CTRL_C: &str = "\x03";

/// A command in a session of its own, whose controlling terminal is a pseudo-terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(server: &RedisServer, arguments: &[&str], colours: bool) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let inner = redlock(&[server.url()]);
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(inner.get_program()).args(arguments);
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if colours {
            command.env_remove("NO_COLOR");
        } else {
            command.env("NO_COLOR", "1");
        }
        let stdio = || slave.try_clone().unwrap();
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The last process that has the terminal has ended: an error on Linux.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().extend(&bytes[..count]);
            }
        });
        Self { child, keyboard, screen }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    async fn shows(&self, words: &str) {
        let begun = std::time::Instant::now();
        while !self.text().contains(words) {
            assert!(begun.elapsed() < SOON, "{words} is not in {}", self.text());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    async fn ended(&mut self) -> ExitStatus {
        eventually("the command ends", SOON, async || self.child.try_wait().unwrap()).await
    }
}

/// Ends the command if the test has failed.
impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_break_shows_the_holder_and_asks() {
    let server = RedisServer::start().await;
    let locks = connect([server.url()]).await;
    let guard = held(&locks, KEY).await;
    let id = locks.status(KEY).await.unwrap().holders()[0].id().to_string();
    let label = locks.owner_label().unwrap().to_string();
    let arguments = ["break", KEY, "--holder", &id];
    for (keys, status, signal) in [
        ("no\n", Some(1), None),
        ("\n", Some(1), None),
        ("\x04", Some(1), None),
        (CTRL_C, None, Some(2)),
    ] {
        let mut terminal = Terminal::start(&server, &arguments, false);
        terminal.shows("Only `yes` breaks the lock: ").await;
        for words in ["order:42", &id, &label, "Since:  2", "Rest:   ", "Nodes:  1 of 1"] {
            assert!(terminal.text().contains(words), "{words}: {}", terminal.text());
        }
        terminal.types(keys);
        let ended = terminal.ended().await;
        assert_eq!((ended.code(), ended.signal()), (status, signal), "{}", terminal.text());
        assert!(server.probe().await.get(KEY).await.is_some(), "{keys:?}");
    }
    let mut terminal = Terminal::start(&server, &arguments, false);
    terminal.shows("Only `yes` breaks the lock: ").await;
    terminal.types("yes\n");
    assert_eq!(terminal.ended().await.code(), Some(0), "{}", terminal.text());
    terminal.shows("order:42: broken.").await;
    assert_eq!(server.probe().await.get(KEY).await, None);
    assert!(guard.release().await.is_err());
}

#[tokio::test]
async fn a_watch_is_shown_in_place_until_ctrl_c() {
    let server = RedisServer::start().await;
    let mut terminal = Terminal::start(&server, &["watch", KEY], false);
    terminal.shows("order:42  free: no holder").await;
    assert!(terminal.text().starts_with("\x1b[?1049h"), "{:?}", terminal.text());
    let locks = connect([server.url()]).await;
    let guard = held(&locks, KEY).await;
    terminal.shows("order:42  exclusive: one holder").await;
    terminal.types(CTRL_C);
    assert_eq!(terminal.ended().await.code(), Some(0));
    terminal.shows("\x1b[?1049l").await;
    let text = terminal.text();
    let (_, last) = text.rsplit_once("\x1b[?1049l\x1b[?25h").unwrap();
    assert!(last.contains("exclusive"), "the last answer stays: {last}");
    drop(guard);
}

#[tokio::test]
async fn colours_are_for_terminals_alone_and_can_be_switched_off() {
    let server = RedisServer::start().await;
    for colours in [true, false] {
        let mut terminal = Terminal::start(&server, &["status", KEY], colours);
        assert_eq!(terminal.ended().await.code(), Some(0));
        terminal.shows("NODE").await;
        assert_eq!(terminal.text().contains("\x1b["), colours, "{:?}", terminal.text());
    }
    let mut command = redlock(&[server.url()]);
    command.args(["status", KEY]).env_remove("NO_COLOR");
    assert!(!super::finish(command).await.out.contains('\x1b'));
}

/// The command is in a process group of its own, to which the terminal sends nothing. It does not read the terminal, which would
/// stop it.
#[tokio::test]
async fn ctrl_c_reaches_the_command_of_a_run() {
    let server = RedisServer::start().await;
    let script = "trap 'echo int; exit 6' INT; cat; echo ready; while :; do sleep 0.02; done";
    let arguments = ["run", KEY, "--", "/bin/sh", "-c", script];
    let mut terminal = Terminal::start(&server, &arguments, false);
    terminal.shows("ready").await;
    terminal.types(CTRL_C);
    assert_eq!(terminal.ended().await.code(), Some(6), "{}", terminal.text());
    assert_eq!(server.probe().await.get(KEY).await, None);
}

#[tokio::test]
async fn ctrl_c_ends_a_question_to_silent_nodes() {
    let mut server = RedisServer::start().await;
    server.freeze();
    for command in ["status", "nodes"] {
        let arguments = if command == "nodes" { &["nodes"][..] } else { &["status", KEY] };
        let mut terminal = Terminal::start(&server, arguments, false);
        // Nothing is printed before the connect timeout of 20 seconds.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        terminal.types(CTRL_C);
        assert_eq!(terminal.ended().await.signal(), Some(2), "{}", terminal.text());
    }
    server.thaw();
}
