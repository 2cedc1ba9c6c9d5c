//! Finds imports through the walls of a room.

use crate::circles::Graph;

/// A room whose modules import few others, and that few others import.
pub(crate) struct Wall {
    /// The room, for example `store`.
    pub(crate) room: &'static str,
    /// The modules of the room that all its other modules may import. The others are strangers to each other.
    pub(crate) shared: &'static [&'static str],
    /// The modules outside that the room may import.
    pub(crate) below: &'static [&'static str],
    /// The modules outside that may import the room.
    pub(crate) above: &'static [&'static str],
}

/// A store knows the protocol of nodes, the kit, and the values of a lock. The manager wires it, and a simulation plays
/// its servers.
pub(crate) const STORES: Wall = Wall {
    room: "store",
    shared: &["kit"],
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
    above: &["manager", "simulation", "test_util"],
};

impl Wall {
    /// Describes each import through this wall, and each permission that nothing needs.
    pub(crate) fn check(&self, graph: &Graph<'_>) -> Vec<String> {
        let mut findings = Vec::new();
        let mut unused: Vec<&str> = [self.below, self.above].concat();
        for (from, to, place) in graph.edges_by_path() {
            let problem = match (self.inside(from), self.inside(to)) {
                (Some(one), Some(other)) if one == other || self.shared.contains(&other) => {
                    continue;
                }
                (Some(_), Some(_)) => "a store imports another one",
                (Some(_), None) => {
                    let Some(room) = to.first() else { continue };
                    unused.retain(|known| known != room);
                    if self.below.contains(&&**room) {
                        continue;
                    }
                    "a store imports more than the protocol and the kit"
                }
                (None, Some(_)) => {
                    // The root of the crate re-exports.
                    let Some(room) = from.first() else { continue };
                    unused.retain(|known| known != room);
                    if self.above.contains(&&**room) {
                        continue;
                    }
                    "only the manager knows the stores"
                }
                (None, None) => continue,
            };
            findings.push(format!("{}: {problem}: {place}", self.room));
        }
        findings.extend(unused.iter().map(|name| format!("{}: nothing needs {name}", self.room)));
        findings
    }

    /// Returns the part of the room that a module belongs to. `None` outside of the room.
    fn inside<'a>(&self, path: &'a [String]) -> Option<&'a str> {
        let (room, rest) = path.split_first()?;
        (room == self.room).then(|| rest.first().map_or("", String::as_str))
    }
}
