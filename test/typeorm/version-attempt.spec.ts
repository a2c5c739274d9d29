import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import type { Lease } from '../../lib/providers/typeorm/version/lease-table.js';
import { type LeaseDatabase, VersionAttempt } from '../../lib/providers/typeorm/version/version-attempt.js';
import { contextFor } from '../backend-context.js';

/** A lease table whose statements the test answers, in the order in which they were sent. */
function scripted() {
  const sent: string[] = [];
  const open: { resolve(answer: unknown): void; reject(error: Error): void }[] = [];
  const statement = (name: string) => () => {
    sent.push(name);
    return new Promise((resolve, reject) => open.push({ resolve, reject }));
  };
  const names = ['look', 'createRow', 'claim', 'voidClaim', 'release'];
  const leases = Object.fromEntries(names.map((name) => [name, statement(name)]));
  const attempt = new VersionAttempt(contextFor(), { leases } as unknown as LeaseDatabase, 'row', 'me');
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  return {
    attempt,
    sent,
    async answer(answer: unknown) {
      open.shift()?.resolve(answer);
      await turn();
    },
    async fail() {
      open.shift()?.reject(new Error('No answer.'));
      await turn();
    },
  };
}

function request(wait = 60_000): { request: AcquireRequest; leave(): void } {
  const caller = new AbortController();
  const leave = () => {
    caller.abort();
  };
  const terms = { key: 'k', holder: 'me', mode: 'exclusive', lease: 30_000, renew: true, minHold: 0 } as const;
  return { request: { ...terms, wait, signal: caller.signal }, leave };
}

const busy: Lease = { holder: 'other', version: 7n, remaining: 5 };
const free: Lease = { holder: undefined, version: 7n, remaining: 0 };
const outcomeOf = (answer: Promise<unknown>) => Promise.race([answer, Promise.resolve('pending')]);
const until = async (isTrue: () => boolean) => {
  while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 1));
};

describe('a caller that leaves', () => {
  it('gets busy immediately while the row is held, although a look is in flight', async () => {
    const { attempt, sent, answer } = scripted();
    const { request: terms, leave } = request();
    const acquired = attempt.acquire(terms);
    await answer(busy);
    await until(() => sent.length === 2);
    leave();
    expect(await acquired).toBe('busy');
    await answer(free);
    expect(sent).toEqual(['look', 'look']);
  });

  it('gets the outcome of a claim that is in flight', async () => {
    for (const [version, expected] of [
      [8n, expect.objectContaining({ fencingToken: 8n })],
      [undefined, 'busy'],
    ] as const) {
      const { attempt, sent, answer } = scripted();
      const { request: terms, leave } = request();
      const acquired = attempt.acquire(terms);
      await answer(busy);
      await until(() => sent.length === 2);
      await answer(free);
      expect(sent).toEqual(['look', 'look', 'claim']);
      leave();
      expect(await outcomeOf(acquired)).toBe('pending');
      await answer(version);
      await answer(busy);
      expect(await acquired).toEqual(expected);
    }
  });

  it('does not get busy while a claim may still be granted, and the release makes that claim void', async () => {
    const { attempt, sent, answer, fail } = scripted();
    const first = attempt.acquire(request().request);
    await answer(free);
    await fail();
    await expect(first).rejects.toThrow('No answer.');
    const { request: terms, leave } = request();
    const again = attempt.acquire(terms);
    leave();
    await Promise.all([answer(free), expect(again).rejects.toThrow(/may still take the lock/)]);
    expect(attempt.mayArrive).toBe(true);
    const released = attempt.release({ keepFor: 0, failed: true });
    await answer(undefined);
    await answer(false);
    expect(await released).toBe('lost');
    expect(attempt.mayArrive).toBe(false);
    expect(sent).toEqual(['look', 'claim', 'look', 'voidClaim', 'release']);
  });
});
