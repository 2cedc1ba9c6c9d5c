"""Executes the order in each input line with the lock of a library, and answers it with one line.

acquire <library> <name> <lease> <wait>, in milliseconds: acquired or refused
release <library>: released
"""

import sys

import django
import pottery
import redis
import redis_lock
from django.conf import settings

port = int(sys.argv[1])
settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{port}/0",
        }
    }
)
django.setup()
from django.core.cache import cache  # noqa: E402 (needs the settings)

client = redis.Redis(port=port)


def new_lock(library, name, lease, wait):
    """Returns a lock, and the arguments with which it waits."""
    if library == "redis-py":
        return client.lock(name, timeout=lease), {"blocking_timeout": wait}
    if library == "django-redis":
        return cache.lock(name, timeout=lease), {"blocking_timeout": wait}
    if library == "python-redis-lock":
        return redis_lock.Lock(client, name, expire=int(lease)), {"timeout": int(wait)}
    return pottery.Redlock(key=name, masters={client}, auto_release_time=lease), {"timeout": wait}


held = {}
print("ready", flush=True)
for line in sys.stdin:
    order, library, *rest = line.split()
    if order == "release":
        held.pop(library).release()
        answer = "released"
    else:
        name, lease, wait = rest[0], int(rest[1]) / 1000, int(rest[2]) / 1000
        lock, waiting = new_lock(library, name, lease, wait)
        acquired = lock.acquire(**waiting) if wait else lock.acquire(blocking=False)
        if acquired:
            held[library] = lock
        answer = "acquired" if acquired else "refused"
    print(answer, flush=True)
