//! The rows of the table, one module per subject.

pub(crate) mod connections;
pub(crate) mod degraded;
pub(crate) mod held;
pub(crate) mod hot_key;
pub(crate) mod modes;
pub(crate) mod own_keys;
pub(crate) mod processes;
pub(crate) mod several_keys;
pub(crate) mod surroundings;

/// The names of all rows, in the order of the table.
pub(crate) const NAMES: [&str; 26] = [
    "one-node",
    "one-node-8",
    "one-node-64",
    "one-node-256",
    "one-node-delayed",
    "one-node-shared-cores",
    "one-node-tls",
    "one-node-current-thread",
    "five-nodes",
    "five-nodes-64",
    "modes",
    "modes-five-nodes",
    "ten-keys",
    "ten-keys-five-nodes",
    "one-frozen",
    "one-frozen-cold",
    "one-far-away",
    "hot-key",
    "hot-key-work",
    "hot-key-fair",
    "hot-key-readers",
    "hot-key-processes",
    "try-held",
    "renewed",
    "distinct",
    "connections",
];
