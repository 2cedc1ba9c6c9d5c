//! Finds keys in network data and append-only files.

/// Returns the keys that begin with `prefix` and continue with digits and colons.
pub(super) fn keys_in(bytes: &[u8], prefix: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let rest = |(start, _)| &text[start + prefix.len()..];
    text.match_indices(prefix)
        .map(rest)
        .map(|rest| {
            let end = rest.find(|next: char| !next.is_ascii_digit() && next != ':');
            format!("{prefix}{}", &rest[..end.unwrap_or(rest.len())])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_commands() {
        let commands =
            b"*6\r\n$3\r\nSET\r\n$8\r\nown:7:12\r\n$2\r\n\xff\xfe\r\n$7\r\nown:7:1\r\n:hot:1";
        assert_eq!(keys_in(commands, "own:"), ["own:7:12", "own:7:1"]);
        assert_eq!(keys_in(b"", "own:"), [""; 0]);
    }
}
