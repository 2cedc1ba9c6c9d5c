//! The append-only file of a server, and the effect of a power cut on it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

use crate::redis_server::RedisServer;

/// The append-only file of a server that is down and was started with `appendonly yes`.
///
/// When the server is killed, the file stays complete, because the kernel already has the data. In a
/// power cut, data that has not reached the disk is lost: the file ends earlier, perhaps in the middle
/// of a command.
#[derive(Debug)]
pub struct AppendOnlyFile {
    path: PathBuf,
    content: Vec<u8>,
}

impl AppendOnlyFile {
    /// Reads the file that the server appends to.
    ///
    /// # Panics
    ///
    /// If the server is up, or has no append-only file.
    pub fn of(server: &RedisServer) -> Self {
        assert!(!server.is_up(), "the server is up and still writes its append-only file");
        // Redis up to 6.2 writes one file. From 7.0 on it writes several, and a manifest names the last.
        let several = server.dir().join("appendonlydir");
        let path = if several.is_dir() {
            let manifest = fs::read_to_string(several.join("appendonly.aof.manifest"));
            let manifest = manifest.expect("the manifest of the append-only files");
            let last = manifest.lines().rfind(|line| line.contains(" type i"));
            let name = last.and_then(|line| line.split(' ').nth(1));
            several.join(name.expect("an append-only file that grows"))
        } else {
            server.dir().join("appendonly.aof")
        };
        let content = fs::read(&path).expect("the append-only file");
        Self { path, content }
    }

    /// Returns the byte ranges of the commands that contain `word`, such as a key, in order.
    pub fn commands_with(&self, word: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((words, end)) = command(&self.content, at) {
            if words.contains(&word.as_bytes()) {
                found.push(at..end);
            }
            at = end;
        }
        found
    }

    /// Returns the last `length` bytes, or the whole content if it is shorter.
    pub fn tail(&self, length: usize) -> &[u8] {
        &self.content[self.content.len().saturating_sub(length)..]
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> usize {
        self.content.len()
    }

    /// Appends commands that change no data, so that the server takes longer to load the file.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn pad(self, commands: usize) {
        let mut end = 0;
        while let Some((_, next)) = command(&self.content, end) {
            end = next;
        }
        let path = self.path.clone();
        // The server could not parse commands behind an incomplete one.
        self.cut(end);
        let file = OpenOptions::new().append(true).open(path);
        let padding = b"*2\r\n$3\r\nDEL\r\n$7\r\npadding\r\n".repeat(commands);
        file.and_then(|mut file| file.write_all(&padding)).expect("the append-only file");
    }

    /// Truncates the file to `end` bytes.
    ///
    /// # Panics
    ///
    /// If the file is shorter than that.
    pub fn cut(self, end: usize) {
        assert!(end <= self.content.len(), "the file ends before byte {end}");
        let file = OpenOptions::new().write(true).open(&self.path).expect("the append-only file");
        file.set_len(end as u64).expect("a shorter append-only file");
    }
}

/// Returns the words of the command at `at` and the position after it; `None` if the command is incomplete.
fn command(content: &[u8], mut at: usize) -> Option<(Vec<&[u8]>, usize)> {
    let mut count = line(content, &mut at)?;
    // Skip annotations, such as the timestamps of `aof-timestamp-enabled`.
    while count.starts_with(b"#") {
        count = line(content, &mut at)?;
    }
    let words = (0..number(count, b'*')).map(|_| {
        let length = number(line(content, &mut at)?, b'$');
        let word = content.get(at..at + length)?;
        at += length;
        line(content, &mut at)?.is_empty().then_some(word)
    });
    let words = words.collect::<Option<Vec<_>>>()?;
    Some((words, at))
}

/// Returns the line at `at` without its line end, and moves `at` behind it.
fn line<'a>(content: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = content.get(*at..)?;
    let length = rest.windows(2).position(|two| two == b"\r\n")?;
    *at += length + 2;
    Some(&rest[..length])
}

fn number(line: &[u8], sign: u8) -> usize {
    let digits = line.strip_prefix(&[sign]).and_then(|digits| str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("not an append-only file at {:?}", line.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_whole_words_and_incomplete_ones_are_not() {
        let set = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8\r\n*1\r\n$1\r\n\r\n";
        let annotation = "#TS:1700000000\r\n";
        let delete = "*2\r\n$3\r\nDEL\r\n$2\r\nab\r\n";
        let torn = "*2\r\n$3\r\nDEL\r\n$1\r\na";
        let content = [set, annotation, delete, torn].concat().into_bytes();
        let file = AppendOnlyFile { path: PathBuf::new(), content };
        let found = |word| {
            let commands = file.commands_with(word).into_iter();
            commands.map(|command| (command.start, command.end)).collect::<Vec<_>>()
        };
        assert_eq!(found("a"), [(0, set.len())]);
        let end = set.len() + annotation.len() + delete.len();
        assert_eq!(found("ab"), [(set.len(), end)]);
        assert_eq!(found("b"), []);
    }

    #[test]
    fn padding_follows_the_last_complete_command() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let (set, torn) = ("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "*2\r\n$3\r\nDEL\r\n$1\r\na");
        let content = [set, torn].concat().into_bytes();
        fs::write(&path, &content).unwrap();
        let file = AppendOnlyFile { path: path.clone(), content };
        assert_eq!((file.tail(3), file.tail(1000).len()), (&b"\r\na"[..], file.length()));
        file.pad(2);
        let padding = "*2\r\n$3\r\nDEL\r\n$7\r\npadding\r\n";
        assert_eq!(fs::read_to_string(path).unwrap(), [set, padding, padding].concat());
    }
}
