//! The scripts of the Redisson dialect.

use super::Call;
use crate::resp::Reply;

pub(super) fn run(mut call: Call<'_>, operation: &str) -> Result<Reply, Reply> {
    let (key, owner) = (call.keys[0], call.arguments[0]);
    let (exists, is_owner) = match call.store.hash(key) {
        Ok(hash) => (hash.is_some(), hash.is_some_and(|hash| hash.contains_key(owner))),
        Err(_) => return Ok(Reply::Int(-3)),
    };
    match operation {
        "acquire" | "acquire_fenced" if exists => Ok(call.time_to_live()),
        "acquire" | "acquire_fenced" => {
            let lease = call.number(1)?;
            let answer = match operation {
                "acquire_fenced" => Reply::bulk(call.count()?),
                _ => Reply::Simple("OK"),
            };
            call.store.put(key, owner, b"1")?;
            call.store.expire_in(key, lease);
            Ok(answer)
        }
        _ if !is_owner => Ok(Reply::Int(0)),
        "release" => {
            call.store.keys.remove(key);
            Ok(Reply::Int(1 + call.store.publish(call.arguments[1], b"0")))
        }
        "shorten" => {
            call.shorten(call.number(1)?);
            Ok(Reply::Int(1 + call.store.publish(call.arguments[2], b"0")))
        }
        _ => call.run_as_owner(operation),
    }
}
