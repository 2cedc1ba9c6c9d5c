//! The scripts of exclusive locks in the plain dialect, except for the acquisition beside a shared lock.

use super::Call;
use crate::resp::Reply;
use crate::store::{Hash, Store};

/// How long a turn of the readers lasts, in milliseconds.
const TURN: i64 = 50;

/// Returns whether a hash is a shared lock.
pub(super) fn is_shared_lock(hash: &Hash) -> bool {
    hash.get(&b"mode"[..]).is_some_and(|mode| mode == b"shared")
}

pub(super) fn run(mut call: Call<'_>, operation: &str) -> Result<Reply, Reply> {
    let (key, token) = (call.keys[0], call.arguments.first());
    let (is_shared, is_owner) = match (call.store.text(key), call.store.hash(key)) {
        (Ok(holder), _) => (false, holder.is_some() && holder == token.copied()),
        (Err(_), Ok(Some(hash))) if is_shared_lock(hash) => (true, false),
        _ => return Ok(Reply::Int(-3)),
    };
    match operation {
        "inspect" if is_shared => Ok(Reply::Int(-4)),
        "inspect" => Ok(call.time_to_live()),
        _ if !is_owner => Ok(Reply::Int(0)),
        "release" => Ok(Reply::Int(1 + call.release())),
        "shorten" => {
            call.shorten(call.number(1)?);
            Ok(Reply::Int(1 + call.store.publish(key, b"0")))
        }
        _ => call.run_as_owner(operation),
    }
}

impl Call<'_> {
    /// Deletes an exclusive lock. Gives impatient readers a turn. Returns the number of notified subscribers.
    pub(super) fn release(&mut self) -> i64 {
        let (store, key) = (&mut *self.store, self.keys[0]);
        store.keys.remove(key);
        let subscribers = store.publish(key, b"0");
        give_turn(store, key, subscribers);
        subscribers
    }
}

/// Gives impatient readers a turn after a release of which subscribers were notified.
pub(super) fn give_turn(store: &mut Store, key: &[u8], subscribers: i64) {
    if subscribers > 0 && store.publish(&[key, b":readers"].concat(), b"0") > 0 {
        let till = store.millis() + TURN;
        let fields = [("mode", "shared".to_owned()), ("t", till.to_string())];
        for (field, value) in fields {
            store.put(key, field.as_bytes(), value.as_bytes()).expect("no key");
        }
        store.expire_at(key, till);
    }
}
