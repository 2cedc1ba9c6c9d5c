//! Runs the commands of a section of examples/README.md, and compares their output with the text.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use redis::Value as RedisValue;
use redlock_tests::{PostgresServer, RedisServer, Service, eventually};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::FIRST;
use crate::{SOON, decided, start};

const README: &str = include_str!("../../../examples/README.md");

/// The processes that the commands of a section have started.
///
/// The README names ports: of the services, of Redis (also in `LOCKS_URLS`) and of PostgreSQL. The test replaces them by free ones.
pub(crate) struct Walkthrough {
    /// The name of the section, and of the example.
    section: &'static str,
    /// By their addresses in the README.
    services: BTreeMap<String, Service>,
    /// The requests that were sent in the background, in order.
    background: Vec<JoinHandle<String>>,
    pub(crate) redis: RedisServer,
    postgres: Option<PostgresServer>,
}

impl Walkthrough {
    /// Runs all commands of a section in order. Returns the reason if a database is missing on this machine.
    pub(crate) async fn run(section: &'static str) -> Result<Walkthrough, String> {
        // A user starts the examples in the folder of the workspace.
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::env::set_current_dir(workspace).unwrap();
        let text = section_text(section);
        let postgres =
            if text.contains("DATABASE_URL") { Some(PostgresServer::start().await?) } else { None };
        let redis = RedisServer::start().await;
        let (services, background) = (BTreeMap::new(), Vec::new());
        let mut walkthrough = Self { section, services, background, redis, postgres };
        walkthrough.follow(text).await;
        Ok(walkthrough)
    }

    /// Runs all commands of a text in order, and compares their output.
    pub(crate) async fn follow(&mut self, text: &'static str) {
        let commands = commands(text);
        assert!(!commands.is_empty(), "the section {} has no commands", self.section);
        for (command, expected) in commands {
            if let Some(output) = self.run_command(command).await {
                check(command, &output, &expected);
            }
        }
    }

    /// Checks the answers to the requests in the background, and that all locks are released. Stops the services.
    pub(crate) async fn ends_with(mut self, answers: &[&str]) {
        for answer in answers {
            assert_eq!(self.background().await, *answer);
        }
        let keys = self.redis.probe().await.keys().await;
        let is_lock = |key: &String| {
            !["redlock:fencing", "redlock:answer"].iter().any(|name| key.contains(name))
        };
        assert!(!keys.iter().any(is_lock), "a lock was not released");
        self.stop().await;
    }

    /// Returns the service that was started on this address of the README.
    pub(crate) fn service_at(&mut self, address: &str) -> &mut Service {
        let section = self.section;
        let service = self.services.get_mut(address);
        service.unwrap_or_else(|| panic!("{section}: no service was started on {address}"))
    }

    /// Returns the first service.
    pub(crate) fn service(&mut self) -> &mut Service {
        self.service_at(FIRST)
    }

    /// Waits for the next answer to a request in the background. Returns it without the end of its last line.
    pub(crate) async fn background(&mut self) -> String {
        self.background.remove(0).await.unwrap().trim_end().to_owned()
    }

    /// Stops the services by Ctrl-C, and checks that they end without an error.
    pub(crate) async fn stop(mut self) {
        for service in self.services.values_mut() {
            let status = service.interrupt().await;
            assert!(status.success(), "{status}: {}", service.log());
        }
    }

    /// Checks that the section quotes a line.
    pub(crate) fn promises(&self, line: &str) {
        let found = section_text(self.section).contains(&format!("`{line}`"));
        assert!(found, "the section {} of the README has no line `{line}`", self.section);
    }

    /// Runs `command`, or `request & sleep seconds; command`. Returns the output; `None` for a start.
    async fn run_command(&mut self, mut command: &'static str) -> Option<String> {
        if let Some((request, rest)) = command.split_once(" & sleep ") {
            let (seconds, rest) = rest.split_once("; ").expect("a command after the sleep");
            self.run_in_background(request).await;
            // A user waits for a second until the handler has begun, and for longer until a lease is over.
            let seconds = seconds.parse().unwrap();
            if seconds > 1 {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            command = rest;
        }
        let words = words(command);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match *words {
            ["curl", ..] => Some(text(self.request(&words)).await),
            ["redis-cli", "-p", "7001", ref words @ ..] => Some(self.redis_cli(words).await),
            [ref variables @ .., "cargo", "run", "--example", name] => {
                assert_eq!(name, self.section, "{command}");
                self.start(variables).await;
                None
            }
            _ => panic!("{command}: no known command"),
        }
    }

    async fn start(&mut self, variables: &[&str]) {
        let mut address = FIRST;
        assert!(README.contains("\n$ export LOCKS_URLS=redis://127.0.0.1:7001\n"));
        let mut environment = vec![("LOCKS_URLS", self.redis.url())];
        for variable in variables {
            match variable.split_once('=').expect("a variable with a value") {
                ("LISTEN", value) => address = value,
                ("DATABASE_URL", _) => {
                    let postgres = self.postgres.as_ref().expect("a database");
                    environment.push(("DATABASE_URL", postgres.admin_url()));
                }
                _ => panic!("{variable}: no known variable"),
            }
        }
        let service = start(self.section, &environment).await;
        if self.section == "leader" && self.services.is_empty() {
            // A user starts the other copy when this one has begun to lead.
            eventually("the first copy leads", SOON, async || {
                service.log().contains("leader: a step").then_some(())
            })
            .await;
        }
        let before = self.services.insert(address.to_owned(), service);
        assert!(before.is_none(), "{}: two services have one address", self.section);
    }

    /// Sends a request, and waits until its handler has logged that it begins.
    async fn run_in_background(&mut self, command: &str) {
        let words = words(command);
        let request = self.request(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let service = &self.services[FIRST];
        let by_example = format!(" INFO {}", self.section);
        let begun = || {
            let log = service.log();
            let lines = log.lines().filter(|line| line.contains(&by_example));
            lines.filter(|line| !line.ends_with(" ends")).count()
        };
        let before = begun();
        self.background.push(tokio::spawn(text(request)));
        eventually("the handler has begun", SOON, async || (begun() > before).then_some(())).await;
    }

    fn request(&self, words: &[&str]) -> reqwest::RequestBuilder {
        let (mut method, mut url, mut headers, mut body) = ("GET", None, Vec::new(), None);
        let mut rest = words[1..].iter().copied();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().unwrap_or_else(|| panic!("{word} has no value"));
            match word {
                "-X" => method = value(),
                "-H" => headers.push(value().split_once(": ").expect("a name and a value")),
                "-d" => body = Some(value().to_owned()),
                "--json" => {
                    headers.push(("content-type", "application/json"));
                    body = Some(value().to_owned());
                }
                _ => assert!(url.replace(word).is_none(), "{words:?}: two URLs"),
            }
        }
        let (address, path) = url.and_then(|url| url.split_once('/')).expect("a URL with a path");
        let url = self.services[address].url(&format!("/{path}"));
        let request = reqwest::Client::new().request(method.parse().unwrap(), url);
        let request =
            headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        match body {
            Some(body) => request.body(body),
            None => request,
        }
    }

    /// Sends a command to the test's Redis. Returns the output of `redis-cli` in a terminal.
    async fn redis_cli(&self, words: &[&str]) -> String {
        match self.redis.probe().await.command::<RedisValue>(words).await {
            RedisValue::Int(number) => format!("(integer) {number}"),
            RedisValue::Array(values) => {
                let line = |(index, value): (usize, &RedisValue)| match value {
                    RedisValue::BulkString(value) => {
                        format!("{}) \"{}\"", index + 1, String::from_utf8_lossy(value))
                    }
                    other => panic!("{other:?}"),
                };
                values.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn text(request: reqwest::RequestBuilder) -> String {
    decided(request).await.unwrap().text().await.unwrap()
}

/// Returns the text between the heading of a section and the next heading.
fn section_text(name: &str) -> &'static str {
    let section = README.split("\n## ").find_map(|text| {
        let (heading, text) = text.split_once('\n')?;
        (heading == name).then_some(text)
    });
    section.unwrap_or_else(|| panic!("the README has no section {name}"))
}

/// Returns the commands of the console blocks, each with the lines of its output.
fn commands(section: &'static str) -> Vec<(&'static str, String)> {
    let mut commands: Vec<(&str, String)> = Vec::new();
    let mut in_console = false;
    for line in section.lines() {
        if line.starts_with("```") {
            in_console = line == "```console";
        } else if !in_console {
        } else if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command, String::new()));
        } else {
            let (_, output) = commands.last_mut().expect("a command before its output");
            output.push_str(line);
            output.push('\n');
        }
    }
    commands
}

/// Splits a command like a shell. A word may contain spaces between single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in command.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(character),
        }
    }
    words
}

/// Compares an output with the README. The seconds of `retry_after` may differ, and `..` stands for any text.
fn check(command: &str, output: &str, expected: &str) {
    match [output, expected].map(serde_json::from_str::<Value>) {
        [Ok(mut output), Ok(mut expected)] => {
            for json in [&mut output, &mut expected] {
                if let Some(seconds) = json.get_mut("retry_after") {
                    assert!(seconds.as_u64() >= Some(1), "{command}: {seconds}");
                    *seconds = Value::Null;
                }
            }
            assert_eq!(output, expected, "{command}");
        }
        _ => assert!(matches(output.trim_end(), expected.trim_end()), "{command}: {output}"),
    }
}

/// Returns whether a text has the form of a pattern, in which `..` stands for any text.
fn matches(text: &str, pattern: &str) -> bool {
    let Some((start, pattern)) = pattern.split_once("..") else { return text == pattern };
    let Some(text) = text.strip_prefix(start) else { return false };
    (0..=text.len()).any(|at| text.get(at..).is_some_and(|rest| matches(rest, pattern)))
}
