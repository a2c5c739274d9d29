import { expect } from '@jest/globals';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import {
  granted,
  leave,
  redisForTests,
  RELEASE,
  request,
  startWithFakeClock,
  twoProcesses,
  until,
  untilWaiting,
} from './seam.js';

// A lagging replica, or a snapshot that is some seconds old, has waiters in the queue that were already served.
describe('waiters that the server remembers again', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);
  const layout = new KeyLayout('lock');
  const lock = layout.lockOf('k');
  const random = systemRandom();

  /** Returns the name of the only process that has waited so far. */
  const nameOfTheOnlyProcess = async () => String((await redis.admin.zrange(`${layout.counter}seen`, '0', '0'))[0]);

  it('are removed by their process, so the next caller does not wait for their provisional leases', async () => {
    const { steady, shaky } = processes;
    // Keeps the process live: it waits for another key.
    const blocked = granted(await steady.backend.acquire(request('other')));
    const alive = shaky.backend.acquire(request('other'));
    await untilWaiting(shaky);
    const name = await nameOfTheOnlyProcess();
    const held = granted(await steady.backend.acquire(request('k')));
    const left = request('k');
    const leaving = shaky.backend.acquire(left);
    await untilWaiting(shaky, 2);
    expect(await leave(shaky.backend, left)).toBe('lost');
    expect(await leaving).toBe('busy');
    await until(async () => (await redis.admin.exists(`${lock}}q`)) === 0, 'the waiter has left');
    const next = steady.backend.acquire(request('k'));
    await untilWaiting(steady);
    for (let ticket = 1; ticket <= 30; ticket += 1) {
      await redis.admin.zadd(`${lock}}q`, ticket, `x${name}3000:${random.id()}`);
    }
    // A waiter that has left counts as dead, like an unknown one.
    await redis.admin.zadd(`${lock}}q`, 31, `x${name}3000:${left.id}`);
    // Their provisional leases together would keep the lock for a minute and a half, and this test would time out.
    await steady.backend.release(held, RELEASE);
    const grant = granted(await next);
    expect(await redis.admin.exists(`${lock}}q`)).toBe(0);
    await steady.backend.release(grant, RELEASE);
    await steady.backend.release(blocked, RELEASE);
    await shaky.backend.release(granted(await alive), RELEASE);
  }, 60_000);

  it('do not end grants to other waiters in the same message', async () => {
    const { steady, shaky } = processes;
    const held = granted(await steady.backend.acquire(request('k')));
    const first = shaky.backend.acquire(request('k'));
    await untilWaiting(shaky);
    const name = await nameOfTheOnlyProcess();
    await redis.admin.zadd(`${lock}}q`, 1, `x${name}3000:${random.id()}`);
    await steady.backend.release(held, RELEASE);
    const grant = granted(await first);
    await until(async () => (await redis.admin.exists(`${lock}}q`)) === 0, 'the queue is empty');
    expect(await shaky.backend.renew(grant, 30_000)).toMatchObject({ validUntil: expect.any(Number) });
    expect(await shaky.backend.release(grant, RELEASE)).toBe('released');
  });

  it('do not include the current holder: a message that arrives late, or twice, frees nothing', async () => {
    const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
    const channel = async () => layout.channelOf(await nameOfTheOnlyProcess());
    const listener = redis.admin.duplicate();
    const notices: string[] = [];
    listener.on('message', (_, notice) => notices.push(notice));
    const held = granted(await processes.steady.backend.acquire(request('k')));
    const waiter = backend.acquire(request('k'));
    await untilWaiting({ backend, events });
    const name = await nameOfTheOnlyProcess();
    await listener.subscribe(await channel());
    // No other process listens: the server believes that the message was received.
    const ears = await redis.admin.call('CLIENT', 'LIST', 'TYPE', 'pubsub');
    expect(String(ears).trim().split('\n').length).toBeGreaterThan(1);
    await processes.steady.backend.release(held, RELEASE);
    const grant = granted(await waiter);
    await until(() => notices.length === 1, 'the notice is received');
    const [notice] = notices as [string];
    for (let times = 0; times < 3; times += 1) await redis.admin.publish(await channel(), notice);
    // Messages arrive on the other connection. A release, had it been sent, would be answered by then.
    for (let round = 0; round < 3; round += 1) await backend.inspect('nothing');
    await until(() => notices.length === 4, 'all notices are received');
    await time.advance(0);
    expect(await redis.admin.get(lock)).toContain(grant.holder);
    expect(await backend.renew(grant, 30_000)).toMatchObject({ validUntil: expect.any(Number) });
    expect(await backend.release(grant, RELEASE)).toBe('released');
    // From here on the id is unknown, so a lock held under it is released.
    await redis.admin.set(lock, `c${notice.slice(0, 16)}9999999999999${name}${grant.holder}`, 'PX', 60_000);
    await redis.admin.publish(layout.channelOf(name), notice);
    await until(async () => (await redis.admin.exists(lock)) === 0, 'the lock is released');
    listener.disconnect();
    await backend.close();
  });
});
