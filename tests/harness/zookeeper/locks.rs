//! The locks on a server, read without the library under test.

use std::time::{Duration, SystemTime};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::client::{ZookeeperClient, ZookeeperError};

/// Returns the name of a lock as a part of a path.
pub(super) fn escape(name: &str) -> String {
    match name {
        "." => "%2E".to_owned(),
        ".." => "%2E.".to_owned(),
        "zookeeper" => "%7Aookeeper".to_owned(),
        _ => name.chars().map(escape_character).collect(),
    }
}

fn escape_character(character: char) -> String {
    match character {
        '%' | '/' => {}
        // ZooKeeper refuses these in a path. It sees characters above U+FFFF as surrogates.
        _ if character.is_control() => {}
        '\u{e000}'..='\u{f8ff}' | '\u{fff0}'.. => {}
        _ => return character.to_string(),
    }
    utf8_percent_encode(character.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC).to_string()
}

/// Reads the locks below a path.
pub(super) struct Locks {
    pub(super) client: ZookeeperClient,
    pub(super) chroot: String,
}

impl Locks {
    fn folder(&self, name: &str) -> String {
        format!("{}/{}", self.chroot, escape(name))
    }

    /// Returns the children of a lock's folder, the holder first.
    pub(super) async fn queue(&mut self, name: &str) -> Vec<String> {
        let folder = self.folder(name);
        self.children(&folder).await
    }

    /// Returns the time until the lease of the holder ends; `None` if the lock is free. It is zero if the holder has no
    /// lease, as those of Curator.
    pub(super) async fn remaining(&mut self, name: &str) -> Option<Duration> {
        let folder = self.folder(name);
        let first = self.queue(name).await.into_iter().next()?;
        let (data, stat) = match self.client.get(&format!("{folder}/{first}")).await {
            Err(error) if error.is(ZookeeperError::NO_NODE) => return None,
            child => child.expect("the holder of the lock"),
        };
        // The id of the holder follows.
        let text = String::from_utf8(data).unwrap_or_default();
        let lease = text.split(' ').next().and_then(|lease| lease.parse().ok());
        let written = Duration::from_millis(stat.mtime.unsigned_abs());
        let end = written + Duration::from_millis(lease.unwrap_or_default());
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
        Some(end.saturating_sub(now))
    }

    /// Returns the number of locks that have a holder, and the number of all children that wait behind one.
    pub(super) async fn count(&mut self) -> (usize, usize) {
        let (mut held, mut waiting) = (0, 0);
        let chroot = self.chroot.clone();
        for folder in self.children(&chroot).await {
            let children = self.children(&format!("{chroot}/{folder}")).await.len();
            held += usize::from(children > 0);
            waiting += children.saturating_sub(1);
        }
        (held, waiting)
    }

    /// Deletes the children of the holder and of the waiters.
    pub(super) async fn delete(&mut self, name: &str) {
        let folder = self.folder(name);
        for child in self.queue(name).await {
            // It may be gone.
            let _ = self.client.delete(&format!("{folder}/{child}")).await;
        }
    }

    /// Returns the children of a path by their numbers; none if there is no such path.
    async fn children(&mut self, path: &str) -> Vec<String> {
        let mut names = match self.client.children(path).await {
            Err(error) if error.is(ZookeeperError::NO_NODE) => return Vec::new(),
            children => children.expect("the children").0,
        };
        // A number has ten digits.
        names.sort_by_key(|name| name.get(name.len().saturating_sub(10)..).map(str::to_owned));
        names
    }
}
