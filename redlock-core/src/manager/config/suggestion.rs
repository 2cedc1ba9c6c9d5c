//! The field that a misspelt name probably means.

use super::LockManagerConfig;

/// Returns the most similar name of a field, if it is similar enough: at most one letter of three is wrong.
pub(super) fn suggestion(name: &str) -> Option<&'static str> {
    let fields = LockManagerConfig::FIELDS.iter();
    let distances = fields.map(|field| (distance(name, field), *field));
    let (distance, field) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= field.len() / 3).then_some(field)
}

/// Returns the number of letters to insert, to remove or to replace between two names (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_means_the_most_similar_field() {
        for (name, field) in [
            ("url", "urls"),
            ("expires", "expire"),
            ("expier", "expire"),
            ("nodetimeout", "node_timeout"),
            ("connection_timeout", "connect_timeout"),
            ("max_waiter", "max_waiters"),
            ("restartguard", "restart_guard"),
        ] {
            assert_eq!(suggestion(name), Some(field), "{name}");
        }
    }

    #[test]
    fn another_name_means_no_field() {
        for name in ["", "tls", "ttl", "redis", "servers", "lease", "timeout"] {
            assert_eq!(suggestion(name), None, "{name}");
        }
    }

    #[test]
    fn the_distance_counts_letters() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }
}
