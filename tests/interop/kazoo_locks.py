"""Executes the order in each input line with the Lock of kazoo, and answers it with one line."""

import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

client = KazooClient(hosts=sys.argv[1], timeout=30)
client.start()
print("ready", flush=True)
locks = {}
for line in sys.stdin:
    order, path, *rest = line.split()
    if order == "acquire":
        # acquire <path> <wait in seconds> <patterns of the children of others>
        lock = client.Lock(path, "kazoo", extra_lock_patterns=rest[1:])
        wait = float(rest[0])
        try:
            acquired = lock.acquire(blocking=wait > 0, timeout=wait or None)
        except LockTimeout:
            acquired = False
        answer = "acquired" if acquired else "refused"
        if acquired:
            locks[path] = lock
    else:
        answer = "released" if locks.pop(path).release() else "not owned"
    print(answer, flush=True)
client.stop()
