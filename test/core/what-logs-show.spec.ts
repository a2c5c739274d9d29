import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { inspect } from 'node:util';
import * as errors from '../../lib/api/errors.js';
import { type LockError, LockKeyError, LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockEventMap } from '../../lib/api/lock-events.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { acquireChannel, eventChannels, holdChannel } from '../../lib/core/events/channels.js';
import type { LeaderTerm } from '../../lib/recipes/campaign.js';
import { Leadership, planCampaign } from '../../lib/recipes/leadership.js';
import { runOnce } from '../../lib/recipes/run-once.js';
import { startManager } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const parse = (something: unknown) => JSON.parse(JSON.stringify(something)) as Record<string, unknown>;

/** Returns an object that JSON rejects for two reasons. */
function circular(): object {
  const value: { self?: object; big: bigint } = { big: 1n };
  value.self = value;
  return value;
}

describe('JSON of a lock', () => {
  it('contains keys, provider, mode, time and tokens as text, but no holder id', async () => {
    const { locks } = await startManager();
    const lock = await locks.acquire('order');
    const token = String(lock.fencingToken);
    expect(token).toMatch(/^\d{16}$/);
    const json = {
      ...{ key: 'order', keys: ['order'], provider: 'main', mode: 'exclusive' },
      ...{ acquiredAt: '2026-01-01T00:00:00.000Z', fencingToken: token, fencingTokens: { order: token } },
    };
    expect(parse(lock)).toEqual(json);
    expect(parse({ lock, locks: [lock] })).toEqual({ lock: json, locks: [json] });
    await lock.release();
    expect(parse(lock)).toEqual(json);
  });

  it('contains the token of each of several keys, even keys named like built-in properties', async () => {
    const { locks } = await startManager();
    const lock = await locks.acquire(['__proto__', 'b']);
    const tokens = Object.fromEntries(Array.from(lock.fencingTokens, ([key, token]) => [key, String(token)]));
    expect(parse(lock)).toMatchObject({ keys: ['__proto__', 'b'], fencingToken: null });
    expect(JSON.stringify(lock)).toContain(JSON.stringify(tokens));
    await lock.release();
  });

  it('matches inspect(), and what a log shows of an object with a lock', async () => {
    const { locks } = await startManager();
    const lock = await locks.acquire('order');
    for (const shown of [
      inspect(lock),
      inspect(lock, { depth: 10, showHidden: true }),
      inspect({ a: [{ lock }] }, { depth: 10 }),
    ]) {
      expect(shown).toContain("key: 'order'");
      expect(shown).not.toContain(lock.holder.slice(12));
      expect(shown.length).toBeLessThan(600);
    }
    await lock.release();
  });
});

describe('JSON of events', () => {
  it('contains tokens as text, and can represent every event', async () => {
    const { locks, events } = await startManager();
    const seen: unknown[] = [];
    const see = (event: unknown) => seen.push(event);
    locks.events.on('elected', see).on('resigned', see).on('force-released', see);
    const onChannel = (message: unknown) => seen.push(message);
    subscribe(eventChannels.acquired.name, onChannel);
    const lock = await locks.acquire('order');
    unsubscribe(eventChannels.acquired.name, onChannel);
    await locks.acquire('order', { wait: 0 }).catch(() => undefined);
    await locks.admin.forceRelease('order');
    const ending = new AbortController();
    const leadership = new Leadership(locks);
    const task = async (term: LeaderTerm) => {
      seen.push(term);
      ending.abort();
      await Promise.resolve();
    };
    await leadership.run('lead', task, planCampaign(locks, {}, 'runAsLeader()'), { signal: ending.signal });
    await runOnce(locks, 'job', () => circular(), { minHold: 0 });
    const all = [...events.map(({ event }) => event), ...seen];
    for (const event of all) expect(typeof JSON.stringify(event)).toBe('string');
    const acquired = events.find(({ name }) => name === 'acquired')?.event as LockEventMap['acquired'];
    expect(parse(acquired)).toEqual({ ...acquired, fencingToken: String(acquired.fencingToken) });
    expect(typeof acquired.fencingToken).toBe('bigint');
    expect(Object.keys(acquired)).not.toContain('toJSON');
    const term = seen.find((each) => each instanceof Object && 'signal' in each) as LeaderTerm;
    expect(parse(term)).toMatchObject({ key: 'lead', fencingToken: String(term.fencingToken) });
    expect(lock.isHeld()).toBe(false);
    await locks.stop();
  });

  it("contains the message and code of an outage's cause", async () => {
    const { locks, events } = await startManager();
    const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', socket: circular() });
    locks.plan({}).core.reachability.failed(cause);
    expect(events.map(({ event }) => parse(event))).toEqual([
      { provider: 'main', cause: { name: 'Error', message: 'connect ECONNREFUSED', code: 'ECONNREFUSED' } },
    ]);
    await locks.stop();
  });

  it('contains the tokens and errors of traces', async () => {
    const { locks } = await startManager();
    const seen: unknown[] = [];
    const see = (trace: unknown) => {
      seen.push(parse(trace));
    };
    const subscribers = { start: see, end: see, asyncStart: see, asyncEnd: see, error: see };
    acquireChannel.subscribe(subscribers);
    holdChannel.subscribe(subscribers);
    await locks.withLock('order', () =>
      locks.detached(() => locks.acquire('order', { wait: 0 })).catch(() => undefined),
    );
    acquireChannel.unsubscribe(subscribers);
    holdChannel.unsubscribe(subscribers);
    expect(seen).toContainEqual(expect.objectContaining({ fencingToken: expect.stringMatching(/^\d+$/) as string }));
    expect(seen).toContainEqual(
      expect.objectContaining({ error: expect.objectContaining({ code: 'LOCK_BUSY', key: 'order' }) as object }),
    );
    await locks.stop();
  });
});

it('JSON of what operators see contains tokens as text', async () => {
  const { locks } = await startManager();
  const lock = await locks.acquire('order');
  const fencingToken = String(lock.fencingToken);
  expect(parse(await locks.admin.inspect('order'))).toMatchObject({ key: 'order', fencingToken });
  expect(parse(locks.admin.held())).toMatchObject([{ key: 'order', fencingToken }]);
  for await (const listed of locks.admin.list()) expect(parse(listed)).toMatchObject({ key: 'order', fencingToken });
  expect(await locks.admin.inspect('free')).toBeNull();
  await lock.release();
});

describe('JSON of lock errors', () => {
  const kinds = Object.entries(errors).filter(([name]) => name.endsWith('Error') && name !== 'LockError');

  it.each(kinds)('contains message, code, key, provider and cause for %s', (name, Kind) => {
    const cause = Object.assign(new Error('below', { cause: circular() }), { code: 'X', client: circular() });
    const details = {
      key: 'a',
      provider: 'main',
      cause,
      reason: 'expired',
      outcome: { status: 'fulfilled', value: circular() },
    };
    const error = new (Kind as unknown as new (message: string, details: object) => LockError)('It failed.', details);
    expect(parse(error)).toMatchObject({
      ...{ name, code: error.code, message: 'It failed.', key: 'a', provider: 'main' },
      cause: { name: 'Error', message: 'below', code: 'X' },
    });
  });

  it("contains the details of each kind, but never a task's result", () => {
    expect(parse(new errors.LockBusyError('x', { waited: 5 }))).toMatchObject({ waited: 5 });
    expect(parse(new errors.LockUnavailableError('x', { sent: false }))).toMatchObject({ sent: false });
    const outcome = { status: 'rejected', reason: circular() } as const;
    expect(parse(new errors.LockLostError('x', { reason: 'revoked', outcome }))).toMatchObject({
      reason: 'revoked',
      outcome: 'rejected',
    });
  });
});

const KEY = 'order:\n[Nest] LOG  \u001b[31mforged\u001b[0m\r\u009b2J\u2028\u202e"1"';

const SHOWN = String.raw`order:\n[Nest] LOG  \u001b[31mforged\u001b[0m\r\u009b2J\u2028\u202e"1"`;

const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]/u;

/** Returns what a log shows of an error, without its call sites. */
function shownOf(error: unknown): string {
  const { message, stack = '' } = error as Error;
  const [first = '', ...calls] = stack.split('\n');
  expect(calls.every((line) => line.startsWith('    at '))).toBe(true);
  expect(first).toContain(message);
  return first;
}

describe('line breaks and escapes of a key', () => {
  it('are escaped in every error message, but kept in its key', async () => {
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

  it('are escaped in every log line', async () => {
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

  it('are escaped by every error of this package, even one that a provider creates', () => {
    const errors = [
      new LockKeyError(KEY),
      new LockLostError(KEY, { reason: 'expired' }),
      new LockUnavailableError(`It failed: ${KEY}`, { cause: new Error(KEY) }),
    ];
    for (const error of errors) expect(shownOf(error)).not.toMatch(UNPRINTABLE);
    expect(shownOf(errors[2]?.cause)).toBe(`Error: ${SHOWN}`);
  });
});
