"""Executes the order in each input line with the Lock of redis-py, and answers it with one line."""

import sys

import redis
from redis.exceptions import LockError, ResponseError

client = redis.Redis(port=int(sys.argv[1]))
locks = {}
for line in sys.stdin:
    order, key, *seconds = line.split()
    if order == "acquire":
        lock = client.lock(key, timeout=float(seconds[0]), blocking_timeout=float(seconds[1]))
        answer = "acquired" if lock.acquire(blocking=float(seconds[1]) > 0) else "refused"
        if answer == "acquired":
            locks[key] = lock
    elif order == "locked":
        try:
            answer = str(client.lock(key).locked())
        except ResponseError as error:
            answer = str(error).split()[0]
    elif order == "extend":
        locks[key].extend(float(seconds[0]), replace_ttl=True)
        answer = "extended"
    else:
        try:
            locks.pop(key).release()
            answer = "released"
        except LockError:
            answer = "not owned"
        except ResponseError as error:
            answer = str(error).split()[0]
    print(answer, flush=True)
