import type { SeenHolder } from '../../lib/providers/shared/seen-holders.js';
import { SeenHolders } from '../../lib/providers/shared/seen-holders.js';
import { requestFor } from '../direct-backend.js';
import { deferred } from './manager-rig.js';

const OWN = { id: '00000000abcd', name: 'shop:1' };
const idOf = (number: number): string => number.toString(16).padStart(12, '0');
const by = (instance: string | null, rest: Partial<SeenHolder> = {}): SeenHolder => ({
  ...{ holders: 1, instance, heldFor: 400 },
  ...rest,
});
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('the holders that a backend has seen', () => {
  it('are those of the last answer, counted from when that was asked', () => {
    const holders = new SeenHolders(OWN, (id) => Promise.resolve(id));
    const request = requestFor('a', 'f'.repeat(32));
    expect(holders.heldBy(request)).toBeNull();
    holders.saw(request, by(OWN.id), 1_000);
    expect(holders.heldBy(request)).toEqual({ holders: 1, instance: 'shop:1', since: 600, seenAt: 1_000 });
    holders.saw(request, by(null, { holders: 3, heldFor: null }), 2_000);
    expect(holders.heldBy(request)).toEqual({ holders: 3, instance: null, since: null, seenAt: 2_000 });
    holders.saw(request, undefined, 3_000);
    expect(holders.heldBy(request)).toBeNull();
  });

  it('have their digits until the name is read, which is read once and where the holder says', async () => {
    const answer = deferred<string>();
    const reads: unknown[] = [];
    const holders = new SeenHolders(OWN, (...read) => {
      reads.push(read);
      return answer.promise;
    });
    const [one, other] = [requestFor('a', 'e'.repeat(32)), requestFor('b', 'f'.repeat(32))];
    holders.saw(one, by(idOf(7), { nameAt: '/locks/a/7' }), 0);
    holders.saw(other, by(idOf(7), { nameAt: '/locks/b/7' }), 0);
    expect(holders.heldBy(one)?.instance).toBe(idOf(7));
    answer.resolve('billing:2');
    await settle();
    expect([one, other].map((request) => holders.heldBy(request)?.instance)).toEqual(['billing:2', 'billing:2']);
    expect(reads).toEqual([[idOf(7), '/locks/a/7']]);
  });

  it('are named by the next answer when a read of the name has failed', async () => {
    const answers = [Promise.reject(new Error('down')), Promise.resolve('billing:2')];
    const holders = new SeenHolders(OWN, () => answers.shift() ?? Promise.reject(new Error('read again')));
    const request = requestFor('a', 'f'.repeat(32));
    holders.saw(request, by(idOf(7)), 0);
    await settle();
    expect(holders.heldBy(request)?.instance).toBe(idOf(7));
    holders.saw(request, by(idOf(7)), 1);
    await settle();
    expect(holders.heldBy(request)?.instance).toBe('billing:2');
  });

  it('keep a thousand names, and forget the oldest', async () => {
    const reads: string[] = [];
    const holders = new SeenHolders(OWN, (id) => {
      reads.push(id);
      return Promise.resolve(`name of ${id}`);
    });
    const request = requestFor('a', 'f'.repeat(32));
    const seeAll = async (from: number, to: number): Promise<void> => {
      for (let number = from; number <= to; number += 1) holders.saw(request, by(idOf(number)), 0);
      await settle();
    };
    await seeAll(1, 1_000);
    await seeAll(1, 1_000);
    expect(reads).toHaveLength(1_000);
    await seeAll(1_001, 1_001);
    await seeAll(2, 1_000);
    expect(reads).toHaveLength(1_001);
    await seeAll(1, 1);
    expect(reads).toHaveLength(1_002);
    expect(holders.heldBy(request)?.instance).toBe(`name of ${idOf(1)}`);
  });
});
