#!/usr/bin/env bash
# After a change of the leader, a session of ZooKeeper has the timeout of its creation, not the one that the client was told.
#
# One would expect: the last server to which a client connects tells it the timeout of its session, and the ensemble keeps
# the session for so long after the last ping.
#
# What happens (ZooKeeper 3.9.4, kazoo 2.11.0): one server has `maxSessionTimeout=6000`, the others 30000. A client asks
# for 30 s. It creates its session at the first server (told 6 s), and continues it at another one (told 30 s). While the
# leader lives, the session lasts about 30 s without the client. When the leader fails, the new one counts from the 6 s that
# the ensemble has stored at the creation. A client that is cut off at that time loses its session after about 6 s.
#
# Why it matters: the ephemeral node of a lock is gone, and another client holds the lock, while the first one still counts
# on 30 s, the last number that it was told. All servers need the same `maxSessionTimeout`, or the client must not accept
# a session that was created with less.
. "$(dirname "$0")/environment.sh"
. "$(dirname "$0")/java.sh"
install kazoo==2.11.0
libraries org.apache.zookeeper:zookeeper:3.9.4 io.dropwizard.metrics:metrics-core:4.2.25 \
    org.xerial.snappy:snappy-java:1.1.10.5 org.slf4j:slf4j-nop:2.0.13
cat >"$folder/client.py" <<'PYTHON'
"""Creates a session with an ephemeral node, or continues one, prints what the server tells, and keeps the session alive."""
import logging
import sys
import time

from kazoo.client import KazooClient
from kazoo.loggingsupport import BLATHER

address, node, *session = sys.argv[1:]
told = []


class Told(logging.Handler):
    def emit(self, record):
        if "negotiated session timeout" in str(record.msg):
            told.append(record.args[2])


logger = logging.Logger("client", BLATHER)
logger.addHandler(Told())
client_id = (int(session[0]), bytes.fromhex(session[1])) if session else None
client = KazooClient(hosts=address, timeout=30, client_id=client_id, logger=logger)
client.start()
if not session:
    client.create(node, ephemeral=True)
number, password = client.client_id
owner = client.exists(node).ephemeralOwner
print(told[0], number, password.hex(), owner == number, flush=True)
time.sleep(600)
PYTHON
run <<'PYTHON'
import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from kazoo.client import KazooClient

folder = Path(os.environ["TMPDIR"])
started = []


@atexit.register
def end():
    for process in started:
        process.kill()
        process.wait()


def check(behaves, what):
    print(("seen: " if behaves else "CHANGED: ") + what, flush=True)
    if not behaves:
        sys.exit(1)


def start(*command, **options):
    started.append(subprocess.Popen([str(part) for part in command], **options))
    return started[-1]


def free_ports(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Server:
    def __init__(self, number, port, limit, members):
        data = folder / f"server{number}"
        data.mkdir()
        (data / "myid").write_text(str(number))
        settings = data / "zoo.cfg"
        settings.write_text(
            f"tickTime=500\ninitLimit=40\nsyncLimit=20\ndataDir={data}\nclientPort={port}\n"
            f"clientPortAddress=127.0.0.1\nmaxSessionTimeout={limit}\n"
            f"4lw.commands.whitelist=srvr\nadmin.enableServer=false\n{members}"
        )
        self.address = f"127.0.0.1:{port}"
        self.process = start(
            "java", "-Xmx128m", f"-Djava.io.tmpdir={folder}", "-Dzookeeper.forceSync=no", "-classpath", f"{folder}/lib/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", settings, stdout=subprocess.DEVNULL,
        )

    def mode(self):
        """What the server is: `leader`, `follower`, or None before it serves."""
        try:
            with socket.create_connection(tuple(self.address.split(":")), 5) as connection:
                connection.sendall(b"srvr")
                reply = connection.makefile().read()
        except OSError:
            return None
        return next((line.split()[1] for line in reply.splitlines() if line.startswith("Mode:")), None)


class Client:
    """A process with a client. It creates the session of a node, or continues one."""

    def __init__(self, server, node, session=()):
        self.process = start(
            sys.executable, folder / "client.py", server.address, node, *session, stdout=subprocess.PIPE, text=True
        )
        told, number, password, owns = self.process.stdout.readline().split()
        assert owns == "True", "the node belongs to the session"
        self.told, self.session = int(told) / 1000, (number, password)


def session(created, continued, node):
    """Creates a session at a server, continues it at another one, and returns the client there and what both told."""
    first = Client(created, node)
    first.process.kill()
    last = Client(continued, node, first.session)
    return last, first.told, last.told


def lives(observer, nodes):
    """Returns for each node after how many seconds from now it is gone."""
    begin, gone = time.monotonic(), {}
    while len(gone) < len(nodes) and time.monotonic() < begin + 60:
        for node in nodes:
            if node not in gone and not observer.retry(observer.exists, node):
                gone[node] = time.monotonic() - begin
        time.sleep(0.1)
    check(len(gone) == len(nodes), "all nodes of clients that are cut off are gone in the end")
    return [gone[node] for node in nodes]


ports = free_ports(9)
members = "".join(f"server.{n + 1}=127.0.0.1:{ports[3 + n]}:{ports[6 + n]}\n" for n in range(3))
servers = [Server(n + 1, ports[n], 6000 if n == 0 else 30000, members) for n in range(3)]
deadline = time.monotonic() + 60
while sorted(str(server.mode()) for server in servers) != ["follower", "follower", "leader"]:
    assert time.monotonic() < deadline, "the servers form an ensemble"
    time.sleep(0.2)
leader = next(server for server in servers if server.mode() == "leader")
small = servers[0]
# The first server could lead only if the others were not there in time.
assert leader is not small, "a server with the large limit leads"
large = next(server for server in servers[1:] if server is not leader)

observer = KazooClient(
    hosts=f"{small.address},{large.address}", connection_retry={"max_tries": -1}, command_retry={"max_tries": -1}
)
observer.start()

client, created, told = session(small, large, "/leader-lives")
check((created, told) == (6, 30), f"the server of the creation tells {created:.0f} s, the next one {told:.0f} s")
client.process.send_signal(signal.SIGSTOP)
[lasts] = lives(observer, ["/leader-lives"])
check(20 < lasts < 45, f"while the leader lives, the paused client has its session for {lasts:.1f} s")

shrinks, _, told = session(small, large, "/created-with-6")
check(told == 30, f"the next client is told {told:.0f} s, too")
control, created, told = session(leader, large, "/created-with-30")
check((created, told) == (30, 30), f"another session is created with {created:.0f} s, and continued with {told:.0f} s")
for client in (shrinks, control):
    client.process.send_signal(signal.SIGSTOP)
leader.process.kill()
leader.process.wait()
short, long = lives(observer, ["/created-with-6", "/created-with-30"])
check(long > 20, f"after the leader has failed, the session that was created with 30 s lasts {long:.1f} s")
check(short < 15, f"the session that was created with 6 s, and told 30 s, lasts {short:.1f} s")
PYTHON
