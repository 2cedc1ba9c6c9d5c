//! The entries of a shared lock on a server.

use std::collections::BTreeMap;

use redlock_tests::Probe;

/// Returns the fields of the hash at a key, in order and without the tokens: `mode=shared r: r: w:` for two readers
/// and a waiting writer. Fields of other libraries are complete. Returns an empty text if the key does not exist.
pub(crate) async fn entries(probe: &mut Probe, key: &str) -> String {
    let fields: BTreeMap<String, String> = probe.command(["HGETALL", key]).await;
    let texts = fields.iter().map(|(field, value)| match field.split_at_checked(2) {
        Some((kind @ ("r:" | "p:" | "w:"), _)) => kind.to_owned(),
        _ if field == "t" => field.clone(),
        _ => format!("{field}={value}"),
    });
    texts.collect::<Vec<_>>().join(" ")
}
