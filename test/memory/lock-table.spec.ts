import { LockTable, type TableHold } from '../../lib/providers/memory/lock-table.js';
import type { LockMode } from '../../lib/api/lock-options.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

function setUp() {
  const clock = new FakeClock();
  const table = new LockTable();
  table.use(clock);
  const lost: string[] = [];
  const served: string[] = [];
  const request = (holder: string, mode: LockMode = 'exclusive', lease = 1_000, minHold = 0) => ({
    holder,
    mode,
    lease,
    minHold,
  });
  const take = (holder: string, mode?: LockMode, lease?: number, minHold?: number): TableHold | undefined =>
    table.tryTake('k', request(holder, mode, lease, minHold), () => lost.push(holder));
  const wait = (holder: string, mode?: LockMode) =>
    table.wait(
      'k',
      request(holder, mode),
      () => lost.push(holder),
      (hold) => served.push(hold ? holder : `not ${holder}`),
    );
  return { clock, table, lost, served, request, take, wait };
}

describe('the table of locks', () => {
  it('gives a key to one, or to readers', () => {
    const { take, table } = setUp();
    expect(take('writer')).toBeDefined();
    expect(take('other')).toBeUndefined();
    table.release('k', 'writer', 0);
    expect([take('r1', 'shared'), take('r2', 'shared')].map((hold) => hold?.token)).toEqual([
      expect.any(BigInt),
      expect.any(BigInt),
    ]);
    expect(take('writer')).toBeUndefined();
  });

  it('finds the own hold of a holder that asks again, as old as it is', () => {
    const { take, clock } = setUp();
    const hold = take('one');
    clock.block(400);
    expect(take('one')).toBe(hold);
    expect(hold?.expiresAt).toBe(1_000);
  });

  it('still knows its holders after thousands of grants, when it has swept what nobody asks for', async () => {
    const { table, request, clock } = setUp();
    const none = () => undefined;
    for (let each = 0; each < 1_500; each += 1) {
      expect(table.tryTake(`k${each}`, request('one'), none)).toBeDefined();
      expect(table.tryTake(`k${each}`, request('two'), none)).toBeUndefined();
    }
    expect(table.size).toBe(1_500);
    clock.block(1_000);
    for (let each = 0; each < 1_600; each += 1) {
      expect(table.tryTake('busy', request(`h${each}`), none)).toBeDefined();
      expect(table.tryTake('busy', request('other'), none)).toBeUndefined();
      table.release('busy', `h${each}`, 0);
    }
    expect(table.size).toBe(0);
    await clock.advance(0);
  });

  it('serves its queue when a lease ends, though nobody asks', async () => {
    const { take, wait, served, clock } = setUp();
    take('one');
    wait('two');
    await clock.advance(999);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['two']);
    await clock.advance(1_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('serves its queue when a renewal has moved the end', async () => {
    const { take, wait, served, table, clock } = setUp();
    take('one');
    wait('two');
    await clock.advance(500);
    expect(table.prolong('k', 'one', 2_000)?.expiresAt).toBe(2_500);
    await clock.advance(1_999);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['two']);
  });

  it('does not prolong what is over, parked or never was', () => {
    const { take, table, clock } = setUp();
    expect(table.prolong('k', 'one', 1_000)).toBeUndefined();
    take('one');
    clock.block(1_000);
    expect(table.prolong('k', 'one', 1_000)).toBeUndefined();
    expect(table.size).toBe(0);
    take('two');
    table.release('k', 'two', 500);
    expect(table.prolong('k', 'two', 1_000)).toBeUndefined();
  });

  it('lets readers behind a writer in when the writer leaves', () => {
    const { take, wait, served } = setUp();
    take('reader', 'shared');
    const writer = wait('writer');
    wait('r2', 'shared');
    wait('r3', 'shared');
    expect(take('late', 'shared')).toBeUndefined();
    writer.leave();
    writer.leave();
    expect(served).toEqual(['r2', 'r3']);
  });

  it('keeps each reader for its own lease', async () => {
    const { take, wait, served, clock } = setUp();
    take('short', 'shared', 500);
    take('long', 'shared', 1_500);
    wait('writer');
    await clock.advance(1_499);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['writer']);
  });

  it('goes over none of the other readers when one comes or leaves', () => {
    const { table, request, clock } = setUp();
    let reads = 0;
    const readers = Array.from({ length: 500 }, (_, each) => `r${each}`);
    const count = (hold: TableHold | undefined) => {
      for (const property of ['expiresAt', 'holder'] as const) {
        const value = hold?.[property];
        Object.defineProperty(hold, property, { get: () => ((reads += 1), value) });
      }
    };
    for (const reader of readers) count(table.tryTake('k', request(reader, 'shared'), () => undefined));
    table.wait(
      'k',
      request('writer'),
      () => undefined,
      () => undefined,
    );
    for (const reader of readers) table.release('k', reader, 0);
    expect(reads).toBeLessThan(10 * readers.length);
    expect(table.look('k')?.holds.map(({ holder }) => holder)).toEqual(['writer']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('ends a place in the queue by a release of its holder', async () => {
    const { take, wait, served, table, clock } = setUp();
    take('one');
    wait('two');
    wait('three');
    expect(table.release('k', 'two', 0)).toBe(false);
    expect(served).toEqual(['not two']);
    expect(table.release('k', 'one', 0)).toBe(true);
    expect(served).toEqual(['not two', 'three']);
    expect(table.release('k', 'one', 0)).toBe(false);
    expect(table.release('nothing', 'one', 0)).toBe(false);
    await clock.advance(1_000);
    expect(table.release('k', 'three', 0)).toBe(false);
    expect([table.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  it('retains a key for nobody: the longest time counts, and after readers it admits readers alone', async () => {
    const { take, wait, served, table, clock } = setUp();
    take('r1', 'shared');
    take('r2', 'shared', 1_000);
    table.release('k', 'r1', 400);
    expect(take('r3', 'shared')).toBeDefined();
    expect(table.look('k')?.holds.map(({ holder }) => holder)).toEqual(['r2', 'r3']);
    table.release('k', 'r2', 100);
    table.release('k', 'r3', 0);
    expect(take('w', 'exclusive')).toBeUndefined();
    wait('writer');
    expect(take('r4', 'shared')).toBeUndefined();
    expect(table.look('k')).toMatchObject({ holds: [], mode: 'shared', waiters: 1, endsAt: 400 });
    await clock.advance(399);
    expect(served).toEqual([]);
    await clock.advance(1);
    expect(served).toEqual(['writer']);
  });

  it('keeps a key for minHold though its lease is shorter, also through renewals', () => {
    const { take, table, clock } = setUp();
    expect(take('one', 'exclusive', 100, 5_000)?.expiresAt).toBe(5_000);
    clock.block(200);
    expect(table.prolong('k', 'one', 100)?.expiresAt).toBe(5_000);
  });

  it('forgets a parked key when somebody looks after its time', () => {
    const { take, table, clock } = setUp();
    take('one');
    table.release('k', 'one', 400);
    expect(table.size).toBe(1);
    clock.block(400);
    expect(table.look('k')).toBeUndefined();
    expect(table.size).toBe(0);
    expect(table.look('never')).toBeUndefined();
  });

  it('frees a key by force: holders are told, the queue is served', () => {
    const { take, wait, served, lost, table } = setUp();
    expect(table.free('k')).toBe(false);
    take('r1', 'shared');
    take('r2', 'shared');
    wait('writer');
    expect(table.free('k')).toBe(true);
    expect([lost, served]).toEqual([['r1', 'r2'], ['writer']]);
    table.release('k', 'writer', 1_000);
    expect(table.free('k')).toBe(true);
    expect(table.size).toBe(0);
  });

  it('stands firm when somebody who is told of the loss takes the key at once', () => {
    const { table, request } = setUp();
    const none = () => undefined;
    table.tryTake('k', request('one'), () => {
      table.release('k', 'one', 0);
      expect(table.tryTake('k', request('two'), none)).toBeDefined();
    });
    table.free('k');
    expect(table.size).toBe(1);
    expect(table.tryTake('k', request('three'), none)).toBeUndefined();
  });

  it('gives tokens that grow, over releases, force and a wall clock that is set back', () => {
    const { take, table, clock } = setUp();
    const tokens: bigint[] = [];
    for (const step of [0, 60_000, -120_000, 0]) {
      clock.stepWallTime(step);
      tokens.push(take(`h${tokens.length}`)?.token ?? 0n);
      table.free('k');
    }
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => (a < b ? -1 : 1)));
    expect(tokens[0]).toBe(BigInt(Date.UTC(2026, 0, 1)) * 1_000n);
  });

  it('gives one token to readers who hold together', () => {
    const { take, table } = setUp();
    const [one, two] = [take('r1', 'shared'), take('r2', 'shared')];
    table.release('k', 'r1', 0);
    const three = take('r3', 'shared');
    expect(new Set([one?.token, two?.token, three?.token]).size).toBe(1);
  });

  it('lets a thousand waiters leave without a trace', () => {
    const { take, wait, table, clock } = setUp();
    take('one');
    const places = Array.from({ length: 1_000 }, (_, each) => wait(`w${each}`));
    for (const place of places) place.leave();
    table.release('k', 'one', 0);
    expect([table.size, clock.pendingTimers]).toEqual([0, 0]);
  });
});
