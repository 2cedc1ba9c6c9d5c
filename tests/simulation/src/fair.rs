//! The scripts of fair queues, executed without Lua.

use super::resp::Reply;
use super::script::micros;
use super::store::{Sorted, Store, int};

/// A presence that ends later than this after now, in microseconds, was set before a step of the clock.
const LONGEST_PRESENCE: i64 = 10_000_000;

/// Executes the script of an operation on the queue `key`.
pub(super) fn run(
    store: &mut Store,
    operation: &str,
    key: &[u8],
    arguments: &[&[u8]],
) -> Result<Reply, Reply> {
    let now = micros(store);
    let (process, presence) = (arguments[0], int(arguments[1])?);
    let mut members = store.sorted(key)?.cloned().unwrap_or_default();
    let first_before = first_ticket(&members);
    let is_ended = |score: &i64| *score < 0 && (*score >= -now || *score < -now - LONGEST_PRESENCE);
    let ended: Vec<Vec<u8>> = members
        .iter()
        .filter(|(_, score)| is_ended(score))
        .map(|(member, _)| process_of(member).to_vec())
        .collect();
    members.retain(|member, _| !ended.iter().any(|ended| ended == process_of(member)));
    let was_present = members.contains_key(process);
    let tickets = &arguments[2..];
    let ticket = |number: &[u8]| [process, b":", number].concat();
    let mut refreshes = false;
    match operation {
        "enter" => {
            refreshes = true;
            for pair in tickets.chunks(2) {
                let arrival = (now - int(pair[1])?).max(1);
                members.entry(ticket(pair[0])).or_insert(arrival);
            }
        }
        "refresh" => refreshes = was_present,
        "leave" => {
            for number in tickets {
                members.remove(&ticket(number));
            }
        }
        _ => {}
    }
    if refreshes {
        members.insert(process.to_vec(), -now - presence);
    }
    let first = first_ticket(&members);
    let lives_until = (now + presence) / 1000;
    store.set_sorted(key, members.clone(), refreshes.then_some(lives_until));
    let answer = |first: &[u8], left: i64| {
        let present = Reply::Int(i64::from(was_present));
        Reply::Array(vec![
            Reply::bulk(now.to_string()),
            present,
            Reply::bulk(first),
            Reply::Int(left),
        ])
    };
    let Some(first) = first else {
        store.keys.remove(key);
        return Ok(answer(b"", 0));
    };
    if first_before.as_ref() != Some(&first) {
        let mut notified = vec![process_of(&first)];
        let before = first_before.as_deref().map(process_of);
        notified.extend(before.filter(|before| *before != process_of(&first)));
        for other in notified.into_iter().filter(|other| *other != process) {
            store.publish(&[key, b":", other].concat(), b"0");
        }
    }
    let left = members.get(process_of(&first)).map_or(0, |score| -score - now);
    Ok(answer(&first, left))
}

fn process_of(member: &[u8]) -> &[u8] {
    member.split(|byte| *byte == b':').next().unwrap_or_default()
}

fn first_ticket(members: &Sorted) -> Option<Vec<u8>> {
    let tickets = members.iter().filter(|(_, score)| **score > 0);
    tickets.min_by_key(|(member, score)| (**score, *member)).map(|(member, _)| member.clone())
}
