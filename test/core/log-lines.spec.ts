import { LockKeyError, LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { startManager } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const KEY = 'order:\n[Nest] LOG  \u001b[31mforged\u001b[0m\r\u009b2J\u2028\u202e"1"';
const SHOWN = String.raw`order:\n[Nest] LOG  \u001b[31mforged\u001b[0m\r\u009b2J\u2028\u202e"1"`;
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]/u;

/** What a log shows of an error, besides its calls. */
function shownOf(error: unknown): string {
  const { message, stack = '' } = error as Error;
  const [first = '', ...calls] = stack.split('\n');
  expect(calls.every((line) => line.startsWith('    at '))).toBe(true);
  expect(first).toContain(message);
  return first;
}

describe('the line breaks and escapes of a key', () => {
  it('are escaped in every error, and stay in its key', async () => {
    const { locks } = await startManager();
    const lock = await locks.acquire(KEY);
    const errors: unknown[] = [];
    const calls: (() => Promise<unknown>)[] = [
      () => locks.acquire(KEY, { wait: 0 }),
      () => locks.acquire(KEY, { wait: '5 parsecs' as never }),
      () => locks.acquire(KEY, { provider: KEY }),
      () => locks.acquire(KEY, { minHold: 'x' } as unknown as LockOptions),
      () => locks.acquire(`${KEY}#{x}`.repeat(500)),
      () => locks.admin.inspect(KEY, 'none'),
      () => lock.extend('1 parsec' as never),
    ];
    for (const call of calls)
      await Promise.resolve()
        .then(call)
        .catch((error: unknown) => errors.push(error));
    expect(errors.length).toBeGreaterThan(5);
    for (const error of errors) expect(shownOf(error)).not.toMatch(UNPRINTABLE);
    expect(errors[0]).toMatchObject({ key: KEY, message: expect.stringContaining(SHOWN) as string });
    await lock.release();
    await locks.stop();
  });

  it('are escaped in every line of the log', async () => {
    const provider = new ScriptedProvider();
    const { locks, log, clock } = await startManager({ provider });
    provider.onAcquire = (_, grant) => grant();
    provider.onRelease = () => 'lost';
    const [lock, other] = [await locks.acquire(KEY), await locks.acquire(`${KEY}2`)];
    await lock.release();
    provider.context.emit({ type: 'unavailable', cause: new Error(`no ${KEY}\nx`) });
    provider.context.logger.warn(KEY);
    provider.context.logger.debug(KEY);
    provider.context.logger.error(KEY);
    provider.onRenew = () => Promise.resolve('lost');
    await clock.advance(30_000);
    expect(other.isHeld()).toBe(false);
    expect(log.length).toBeGreaterThan(5);
    for (const line of log) expect(line).not.toMatch(UNPRINTABLE);
    for (const line of log) expect(line).toContain(SHOWN);
    await locks.stop();
  });

  it('are escaped by each error of this package, also one that a provider makes', () => {
    const errors = [
      new LockKeyError(KEY),
      new LockLostError(KEY, { reason: 'expired' }),
      new LockUnavailableError(`It failed: ${KEY}`, { cause: new Error(KEY) }),
    ];
    for (const error of errors) expect(shownOf(error)).not.toMatch(UNPRINTABLE);
    expect(shownOf(errors[2]?.cause)).toBe(`Error: ${SHOWN}`);
  });
});
