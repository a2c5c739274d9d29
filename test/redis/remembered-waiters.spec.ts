import { describe, expect, it } from '@jest/globals';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import {
  granted,
  isSettled,
  redisForTests,
  RELEASE,
  request,
  startWithFakeClock,
  twoProcesses,
  until,
  untilWaiting,
} from './seam.js';

// A replica that lags, or a snapshot that is some seconds old, has waiters in the queue that were served already.
describe('waiters that the server remembers again', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);
  const layout = new KeyLayout('lock');
  const lock = layout.lockOf('k');
  const random = systemRandom();

  /** The name of the process that alone has waited so far. */
  const nameOfTheOnlyProcess = async () => String((await redis.admin.zrange(`${layout.counter}seen`, '0', '0'))[0]);

  it('are taken out by their process, so that the next caller waits for no provisional lease of them', async () => {
    const { steady, shaky } = processes;
    // Its process is alive: it waits for another key.
    const blocked = granted(await steady.backend.acquire(request('other')));
    const alive = shaky.backend.acquire(request('other'));
    await untilWaiting(shaky);
    const name = await nameOfTheOnlyProcess();
    const held = granted(await steady.backend.acquire(request('k')));
    const left = request('k');
    const leaving = shaky.backend.acquire(left);
    await untilWaiting(shaky, 2);
    left.abort();
    expect(await leaving).toBe('busy');
    await until(async () => (await redis.admin.exists(`${lock}}q`)) === 0, 'it has left');
    const next = steady.backend.acquire(request('k'));
    await untilWaiting(steady);
    for (let ticket = 1; ticket <= 30; ticket += 1) {
      await redis.admin.zadd(`${lock}}q`, ticket, `x${name}3000:${random.id()}`);
    }
    // One that has waited and left is no more alive than one that nobody knows.
    await redis.admin.zadd(`${lock}}q`, 31, `x${name}3000:${left.holder}`);
    // One after the other they would keep the lock for a minute and a half, and this test would run out of time.
    await steady.backend.release(held, RELEASE);
    const grant = granted(await next);
    expect(await redis.admin.exists(`${lock}}q`)).toBe(0);
    await steady.backend.release(grant, RELEASE);
    await steady.backend.release(blocked, RELEASE);
    await shaky.backend.release(granted(await alive), RELEASE);
  }, 60_000);

  it('do not end what others of the same message are granted', async () => {
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

  it('are not those of a cohort that lives: a second notice for its first one ends nothing', async () => {
    const members = await startWithFakeClock({ url: redis.server.url });
    const held = granted(await processes.steady.backend.acquire(request('k')));
    const waiters = [request('k'), request('k'), request('k')].map((each) => members.backend.acquire(each));
    await untilWaiting(members, 3);
    const channel = layout.channelOf(await nameOfTheOnlyProcess());
    const listener = redis.admin.duplicate();
    const notices: string[] = [];
    listener.on('message', (_, notice) => notices.push(notice));
    await listener.subscribe(channel);
    await processes.steady.backend.release(held, RELEASE);
    const first = granted(await waiters[0]!);
    await until(() => notices.length === 1, 'the notice is heard');
    // To a holder of the lock, and to one that has passed it on.
    await redis.admin.publish(channel, notices[0]!);
    await members.backend.inspect('nothing');
    expect(await members.backend.release(first, RELEASE)).toBe('released');
    const second = granted(await waiters[1]!);
    await redis.admin.publish(channel, notices[0]!);
    for (let round = 0; round < 3; round += 1) await members.backend.inspect('nothing');
    expect(await redis.admin.get(lock)).toContain(first.holder);
    expect(await isSettled(waiters[2]!)).toBe(false);
    expect(await members.backend.release(second, RELEASE)).toBe('released');
    expect(await members.backend.release(granted(await waiters[2]!), RELEASE)).toBe('released');
    expect(await redis.admin.exists(lock, `${lock}}q`)).toBe(0);
    listener.disconnect();
    await members.backend.close();
  });
});
