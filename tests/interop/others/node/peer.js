// Executes the order in each input line with the lock of a library, and answers it with one line.
//
// acquire <library> <name> <lease> <wait>, in milliseconds: acquired or refused
// release <library>: released

import readline from 'node:readline';

import Redis from 'ioredis';
import { createClient } from 'redis';
import { Mutex } from 'redis-semaphore';
import Redlock from 'redlock';
import mutex from 'simple-redis-mutex';

const port = Number(process.argv[2]);
const ioredis = new Redis(port);
const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();

// Each function returns the function that releases the lock, or null.
const libraries = {
  'node-redlock': async (name, lease, wait) => {
    const locks = new Redlock([ioredis], { retryCount: wait ? -1 : 0 });
    try {
      const lock = await locks.acquire([name], lease);
      return () => lock.release();
    } catch {
      return null;
    }
  },
  'redis-semaphore': async (name, lease, wait) => {
    const lock = new Mutex(ioredis, name, { lockTimeout: lease, acquireTimeout: wait || 1, acquireAttemptsLimit: wait ? undefined : 1 });
    return (await lock.tryAcquire()) ? () => lock.release() : null;
  },
  'simple-redis-mutex': async (name, lease, wait) => {
    if (wait) return mutex.lock(client, name, { timeout: lease, failAfter: wait });
    const [acquired, release] = await mutex.tryLock(client, name, { timeout: lease });
    return acquired ? release : null;
  },
};

const held = {};
console.log('ready');
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [order, library, name, lease, wait] = line.split(' ');
  if (order === 'release') {
    await held[library]();
    console.log('released');
  } else {
    held[library] = await libraries[library](name, Number(lease), Number(wait));
    console.log(held[library] ? 'acquired' : 'refused');
  }
}
process.exit(0);
