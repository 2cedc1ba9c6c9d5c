//! Runs the commands of a section of examples/README.md, and compares their output with the text.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use redis::Value as RedisValue;
use redlock_tests::{Postgres, RedisServer, Service, eventually};
use serde_json::Value;
use tokio::task::JoinHandle;

const README: &str = include_str!("../../../examples/README.md");

/// The address that the README starts services on.
const ADDRESS: &str = "127.0.0.1:3000";

const SOON: Duration = Duration::from_secs(20);

/// The processes that the commands of a section have started.
///
/// The README names ports: of the services, of Redis and of PostgreSQL. The test replaces them by free ones.
pub(crate) struct Walkthrough {
    section: &'static str,
    program: &'static Path,
    services: HashMap<String, Service>,
    /// The requests that were sent in the background, in order.
    background: Vec<JoinHandle<String>>,
    pub(crate) redis: RedisServer,
    postgres: Option<Postgres>,
}

impl Walkthrough {
    /// Runs all commands of a section in order. Returns the reason if a database is missing on this machine.
    pub(crate) async fn run(
        section: &'static str,
        program: &'static str,
    ) -> Result<Walkthrough, String> {
        // A user starts the examples in the folder of the workspace.
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::env::set_current_dir(workspace).unwrap();
        let text = section_text(section);
        let postgres =
            if text.contains("DATABASE_URL") { Some(Postgres::start().await?) } else { None };
        let redis = RedisServer::start().await;
        let mut walkthrough = Self {
            section,
            program: Path::new(program),
            services: HashMap::new(),
            background: Vec::new(),
            redis,
            postgres,
        };
        let commands = commands(text);
        assert!(!commands.is_empty(), "the section {section} has no commands");
        for (command, expected) in commands {
            if let Some(output) = walkthrough.run_command(command).await {
                check(command, &output, &expected);
            }
        }
        Ok(walkthrough)
    }

    /// Returns the service that was started on this address of the README.
    pub(crate) fn service_at(&mut self, address: &str) -> &mut Service {
        let section = self.section;
        let service = self.services.get_mut(address);
        service.unwrap_or_else(|| panic!("{section}: no service was started on {address}"))
    }

    /// Returns the only service.
    pub(crate) fn service(&mut self) -> &mut Service {
        self.service_at(ADDRESS)
    }

    /// Waits for the next answer to a request in the background.
    pub(crate) async fn background(&mut self) -> String {
        self.background.remove(0).await.unwrap()
    }

    /// Stops a service by Ctrl-C, and checks that it ends without an error.
    pub(crate) async fn stop(&mut self, address: &str) {
        let service = self.service_at(address);
        let status = service.interrupt().await;
        assert!(status.success(), "{status}: {}", service.log());
    }

    /// Checks that the section contains a line.
    pub(crate) fn promises(&self, line: &str) {
        let found = section_text(self.section).lines().any(|other| other == line);
        assert!(found, "the section {} of the README has no line `{line}`", self.section);
    }

    /// Runs `command`, or `request & sleep seconds; command`. Returns the output; `None` for a start.
    async fn run_command(&mut self, command: &str) -> Option<String> {
        let (background, command) = match command.split_once(" & sleep ") {
            Some((background, rest)) => {
                let (seconds, command) = rest.split_once("; ").expect("a command after the sleep");
                (Some((background, seconds.parse().unwrap())), command)
            }
            None => (None, command),
        };
        if let Some((request, seconds)) = background {
            self.run_in_background(request).await;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        let words = words(command);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        match *words {
            // The tests of the example run with the tests of the workspace.
            ["cargo", "test", "--example", _] => None,
            ["curl", ..] => Some(self.curl(&words).await),
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
        let mut address = ADDRESS.to_owned();
        let mut environment = Vec::new();
        for variable in variables {
            match variable.split_once('=').expect("a variable with a value") {
                ("LISTEN", value) => value.clone_into(&mut address),
                (name @ ("REDIS_URLS" | "LOCKS_URLS"), "redis://127.0.0.1:7001") => {
                    environment.push((name, self.redis.url()));
                }
                ("DATABASE_URL", _) => {
                    let postgres = self.postgres.as_ref().expect("a database");
                    environment.push(("DATABASE_URL", postgres.url()));
                }
                _ => panic!("{variable}: no known variable"),
            }
        }
        let service = Service::start(self.program, &environment).await;
        let before = self.services.insert(address, service);
        assert!(before.is_none(), "{}: two services have one address", self.section);
    }

    /// Sends a request, and waits until its handler has logged that it begins.
    async fn run_in_background(&mut self, command: &str) {
        let words = words(command);
        let request = self.request(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let service = &self.services[ADDRESS];
        let before = service.log().len();
        self.background
            .push(tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() }));
        eventually("the handler has begun", SOON, async || {
            (service.log().len() > before).then_some(())
        })
        .await;
    }

    async fn curl(&self, words: &[&str]) -> String {
        self.request(words).send().await.unwrap().text().await.unwrap()
    }

    fn request(&self, words: &[&str]) -> reqwest::RequestBuilder {
        let (words, json) = match *words {
            [ref words @ .., "--json", json] => (words, Some(json.to_owned())),
            ref words => (words, None),
        };
        let (method, url) = match *words {
            ["curl", url] => ("GET", url),
            ["curl", "-X", method, url] => (method, url),
            _ => panic!("{words:?}: no known request"),
        };
        let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let url = self.services[address].url(&format!("/{path}"));
        let request = reqwest::Client::new().request(method.parse().unwrap(), url);
        match json {
            Some(json) => request.header("content-type", "application/json").body(json),
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

/// Compares an output with the README. The seconds of `retry_after` may differ.
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
        _ => assert_eq!(output.trim_end(), expected.trim_end(), "{command}"),
    }
}
