//! Finds imports through the walls of a room.

use crate::circles::Graph;

/// A room whose modules import few others.
pub(crate) struct Wall {
    /// The room, for example `store`.
    pub(crate) room: &'static str,
    /// The modules of the room that all its other modules may import. The others are strangers to each other. `None` if the
    /// modules of the room may import each other.
    pub(crate) shared: Option<&'static [&'static str]>,
    /// The modules outside that the room may import.
    pub(crate) below: &'static [&'static str],
    /// The modules outside that may import the room, each with the parts that it may import; the part without a name is the
    /// `mod.rs` of the room. `None` if all modules may import the whole room.
    pub(crate) above: Option<&'static [(&'static str, &'static [&'static str])]>,
}

/// The walls of the crate `redlock-core`.
pub(crate) const WALLS: [Wall; 4] = [
    // A store knows the protocol of nodes, the kit, and the values of a lock. The manager wires it, and a simulation plays
    // its servers.
    Wall {
        room: "store",
        shared: Some(&["kit"]),
        below: &[
            "access",
            "clock",
            "error",
            "fencing_token",
            "jitter",
            "key",
            "lock",
            "log_limit",
            "node",
            "quorum",
            "random",
            "seeded",
            "telemetry",
            "time_text",
            "validity",
        ],
        // The manager knows the stores by their table, and the node in memory by its public methods. `redlock-axum` keeps answers
        // over the clients of two stores.
        above: Some(&[
            ("__private", &["postgres", "redis"]),
            ("manager", &["", "kit", "memory"]),
            ("simulation", &["kit", "redis"]),
            ("test_util", &["memory"]),
        ]),
    },
    // The protocol of nodes knows the values of a lock.
    Wall {
        room: "node",
        shared: None,
        below: &["clock", "error", "key", "lock", "random", "seeded", "validity"],
        above: None,
    },
    // Options know no manager that has them.
    Wall {
        room: "options",
        shared: None,
        below: &["error", "lock", "time_text", "validity"],
        above: None,
    },
    // The checks of requests compare the options with the capabilities of the nodes.
    Wall {
        room: "limits",
        shared: None,
        below: &["error", "lock", "node", "options", "validity"],
        above: Some(&[("context", &[""]), ("manager", &[""])]),
    },
];

impl Wall {
    /// Describes each import through this wall, and each permission that nothing needs.
    pub(crate) fn check(&self, graph: &Graph<'_>) -> Vec<String> {
        let mut findings = Vec::new();
        let above = self.above.unwrap_or_default();
        let parts =
            above.iter().flat_map(|(room, parts)| parts.iter().map(move |part| (*room, *part)));
        let mut unused: Vec<_> = self.below.iter().map(|room| (*room, "")).chain(parts).collect();
        for (from, to, place) in graph.edges_by_path() {
            let problem = match (self.inside(from), self.inside(to)) {
                (Some(one), Some(other)) => {
                    let is_shared = |shared: &[&str]| one == other || shared.contains(&other);
                    if self.shared.is_none_or(is_shared) {
                        continue;
                    }
                    "a part imports another one"
                }
                (Some(_), None) => {
                    let Some(room) = to.first() else { continue };
                    unused.retain(|(known, _)| known != room);
                    if self.below.contains(&&**room) {
                        continue;
                    }
                    "it imports more than it may"
                }
                (None, Some(part)) => {
                    // The root of the crate re-exports.
                    let Some(room) = from.first() else { continue };
                    unused.retain(|known| *known != (room, part));
                    let is_open =
                        |(one, parts): &(&str, &[&str])| one == room && parts.contains(&part);
                    if self.above.is_none_or(|above| above.iter().any(is_open)) {
                        continue;
                    }
                    "a module imports it that may not"
                }
                (None, None) => continue,
            };
            findings.push(format!("{}: {problem}: {place}", self.room));
        }
        let needless = |(name, part): &(&str, &str)| {
            let to = if part.is_empty() { String::new() } else { format!(" to {part}") };
            format!("{}: nothing needs {name}{to}", self.room)
        };
        findings.extend(unused.iter().map(needless));
        findings
    }

    /// Returns the part of the room that a module belongs to. `None` outside of the room.
    fn inside<'a>(&self, path: &'a [String]) -> Option<&'a str> {
        let (room, rest) = path.split_first()?;
        (room == self.room).then(|| rest.first().map_or("", String::as_str))
    }
}
