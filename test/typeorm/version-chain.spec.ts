import { SeenHolders } from '../../lib/providers/shared/seen-holders.js';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import type { Lease } from '../../lib/providers/sql/version/lease.js';
import { type LeaseDatabase, VersionRequest } from '../../lib/providers/sql/version/version-request.js';
import { contextFor } from '../backend-context.js';
import { requestFor } from '../direct-backend.js';

const unseen = new SeenHolders({ id: '0123456789ab', name: 'host:1' }, (id) => Promise.resolve(id));

const free: Lease = { version: 7n, serverTime: 0, holds: [], holders: null, pieces: [] };
const held: Lease = {
  ...free,
  holds: [{ holder: 'other', token: 7n, limited: undefined, expires: 5_000_000 }],
};
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Requests for these keys, each behind the one before it, on a table whose statements the test answers by their names. */
function chainOf(keys: readonly string[], terms: Partial<AcquireRequest> = {}) {
  const sent: string[] = [];
  const open = new Map<string, { resolve(answer: unknown): void; reject(error: Error): void }>();
  const statement = (what: string) => (name: string) => {
    // The name of a row ends with its key.
    const label = `${what} ${name.split(':').at(-1)}`;
    sent.push(label);
    return new Promise((resolve, reject) => open.set(label, { resolve, reject }));
  };
  const names = ['read', 'createRow', 'claim', 'voidClaim', 'release'];
  const leases = {
    ...Object.fromEntries(names.map((name) => [name, statement(name)])),
    free: ({ name }: { readonly name: string }) => statement('free')(name),
  };
  const database = { leases, limited: { leases } } as unknown as LeaseDatabase;
  const requests: VersionRequest[] = [];
  const told: string[] = [];
  let after: AcquireRequest | undefined;
  for (const key of keys) {
    const request = requestFor(key, `by-${key}`, { after, ...terms });
    request.waits = () => void told.push(key);
    const own = new VersionRequest(contextFor(), database, request, unseen);
    request.state = own as never;
    requests.push(own);
    after = request;
  }
  const answers: unknown[] = [];
  return {
    sent,
    answers,
    told,
    requests,
    ask() {
      for (const [index, own] of requests.entries()) {
        void own.acquire().then(
          (answer) => (answers[index] = typeof answer === 'object' ? 'grant' : answer),
          (error: unknown) => (answers[index] = error),
        );
      }
    },
    async answer(label: string, answer: unknown) {
      open.get(label)?.resolve(answer);
      await turn();
    },
    async fail(label: string) {
      open.get(label)?.reject(new Error('No answer.'));
      await turn();
    },
  };
}

describe('several keys of a version lock', () => {
  it('are looked at together, and claimed one by one in their order', async () => {
    const { ask, answer, sent, answers } = chainOf(['a', 'b', 'c']);
    ask();
    expect(sent).toEqual(['read a', 'read b', 'read c']);
    for (const key of ['c', 'b', 'a']) await answer(`read ${key}`, free);
    expect(sent.slice(3)).toEqual(['claim a']);
    await answer('claim a', 8n);
    expect(sent.slice(4)).toEqual(['claim b']);
    await answer('claim b', 8n);
    expect(answers).toEqual(['grant', 'grant']);
    await answer('claim c', 8n);
    expect(answers).toEqual(['grant', 'grant', 'grant']);
    expect(sent).toHaveLength(6);
  });

  it('are not claimed behind one that waits', async () => {
    const { ask, answer, sent, answers, told, requests } = chainOf(['a', 'b', 'c', 'd']);
    ask();
    for (const key of ['a', 'c', 'd']) await answer(`read ${key}`, free);
    await answer('read b', held);
    await answer('claim a', 8n);
    // It may have become free since it was seen.
    expect(sent.slice(4)).toEqual(['claim a', 'read b']);
    expect(answers).toEqual(['grant']);
    await answer('read b', held);
    expect(told).toEqual(['b']);
    expect(answers).toEqual(['grant', undefined, 'not-asked', 'not-asked']);
    // Nothing was sent for these.
    expect(await requests[2]?.release({ keepFor: 0, failed: true })).toBe('lost');
    expect(sent.filter((each) => /[cd]$/.test(each))).toEqual(['read c', 'read d']);
    await requests[1]?.release({ keepFor: 0, failed: true });
  });

  it('are claimed where a row that was held when it was seen is free in its turn', async () => {
    const { ask, answer, answers } = chainOf(['a', 'b'], { wait: 0 });
    ask();
    await answer('read a', free);
    await answer('read b', held);
    await answer('claim a', 8n);
    await answer('read b', free);
    await answer('claim b', 8n);
    expect(answers).toEqual(['grant', 'grant']);
  });

  it('are looked at again where another claim was faster, or a row was missing', async () => {
    const { ask, answer, sent, answers } = chainOf(['a', 'b', 'c'], { wait: 0 });
    ask();
    await answer('read a', free);
    await answer('read b', free);
    await answer('read c', undefined);
    await answer('claim a', 8n);
    await answer('claim b', undefined);
    expect(sent.at(-1)).toBe('read b');
    await answer('read b', { ...free, version: 8n });
    await answer('claim b', 9n);
    expect(sent.at(-1)).toBe('createRow c');
    await answer('createRow c', undefined);
    await answer('read c', free);
    await answer('claim c', 8n);
    expect(answers).toEqual(['grant', 'grant', 'grant']);
  });

  it.each(['busy', 'failed'])('are not claimed behind one that is %s', async (outcome) => {
    const { ask, answer, fail, sent, answers } = chainOf(['a', 'b'], { wait: 0 });
    ask();
    await answer('read b', free);
    if (outcome === 'busy') await answer('read a', held);
    else await fail('read a');
    expect(answers).toEqual([outcome === 'busy' ? 'busy' : expect.any(Error), 'not-asked']);
    expect(sent).toEqual(['read a', 'read b']);
  });

  it('are looked at again where the first look has failed', async () => {
    const { ask, answer, fail, answers } = chainOf(['a', 'b'], { wait: 0 });
    ask();
    await answer('read a', free);
    await fail('read b');
    await answer('claim a', 8n);
    await answer('read b', free);
    await answer('claim b', 8n);
    expect(answers).toEqual(['grant', 'grant']);
  });

  it('send nothing more after their release', async () => {
    const { ask, answer, sent, requests, answers } = chainOf(['a', 'b', 'c'], { wait: 0 });
    ask();
    for (const key of ['a', 'b', 'c']) await answer(`read ${key}`, free);
    expect(await requests[1]?.release({ keepFor: 0, failed: true })).toBe('lost');
    await answer('claim a', 8n);
    expect(answers).toEqual(['grant', 'not-asked', 'not-asked']);
    expect(sent.at(-1)).toBe('claim a');
  });
});
