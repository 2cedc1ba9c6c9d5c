//! The commands of the page `operating` of the guide and of `examples/README.md` print what the pages show.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use redlock_tests::{Servers, redlock};

use super::{Done, finish, held, labelled};

const PAGE: &str = include_str!("../../redlock-axum/docs/operating.md");
const EXAMPLES: &str = include_str!("../../examples/README.md");
/// The id of the holder on the pages.
const ID: &str = "9f86d081884c7d65";

/// A command of a page, with the lines that follow it.
#[derive(Debug)]
struct Shown {
    command: &'static str,
    output: String,
}

/// Returns the commands `redlock` in the console blocks of a page.
fn commands(page: &'static str) -> Vec<Shown> {
    let mut commands = Vec::<Shown>::new();
    let (mut in_console, mut is_ours) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            (in_console, is_ours) = (line == "```console", false);
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| in_console) {
            is_ours = command.starts_with("redlock ");
            if is_ours {
                commands.push(Shown { command, output: String::new() });
            }
        } else if in_console && is_ours {
            let shown = commands.last_mut().unwrap();
            shown.output.push_str(line);
            shown.output.push('\n');
        }
    }
    commands
}

/// Returns the words of a text. Each word with a digit, such as a time or an address, is the same. The word `..` stands for the
/// rest. The servers of the tests may be Valkey.
fn words(text: &str) -> Vec<&str> {
    let words = text.split_whitespace().map(|word| match word {
        "Valkey" => "Redis",
        _ if word.contains(|c: char| c.is_ascii_digit()) => "#",
        _ => word,
    });
    words.collect()
}

/// Splits a command as a shell does. A word may contain blanks between quotes.
fn split(command: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for character in command.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(character),
        }
    }
    words
}

async fn run(urls: &[String], folder: &Path, words: &[String]) -> Done {
    let mut command = redlock(urls);
    command.args(&words[1..]).current_dir(folder);
    finish(command).await
}

/// Runs the commands of a page in their order. A lock that they show is held by a process with the label of the pages.
async fn follow(page: &'static str, count: usize, servers: usize) {
    let servers = Servers::start(servers).await;
    let urls = servers.urls();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("report.sh");
    std::fs::write(&script, "#!/bin/sh\necho \"the report has the number $LOCK_FENCING_TOKEN\"\n")
        .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let locks = labelled(&urls, "shop-7f9c:4121").await;
    let guard = held(&locks, "order:42").await;
    let id = locks.status("order:42").await.unwrap().holders()[0].id().to_string();
    let commands = commands(page);
    assert_eq!(commands.len(), count, "{commands:?}");
    for Shown { command, output } in commands {
        let words_of = split(&command.replace(ID, &id));
        if words_of[1] == "watch" {
            // The page shows only how it is started: `watch` has tests of its own.
            continue;
        }
        let done = run(&urls, folder.path(), &words_of).await;
        let printed = format!("{}{}", done.err, done.out);
        let (mut printed, mut expected) = (words(&printed), words(&output));
        if expected.last() == Some(&"..") {
            expected.pop();
            printed.truncate(expected.len());
        }
        assert_eq!(printed, expected, "{command}: {done:?}");
    }
    assert!(guard.release().await.is_err(), "the page breaks the lock");
}

#[tokio::test]
async fn each_command_of_the_page_prints_what_the_page_shows() {
    follow(PAGE, 6, 3).await;
}

#[tokio::test]
async fn each_command_of_the_examples_prints_what_the_page_shows() {
    follow(EXAMPLES, 3, 1).await;
}
