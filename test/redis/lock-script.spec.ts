import { expect } from '@jest/globals';
import { callScript, COUNTER, HERE, LOCK, THERE, type Operation, redisForTests, serverTime, until } from './seam.js';

describe('the lock script', () => {
  const redis = redisForTests();

  const run = (process: string, ...operations: Operation[]) => callScript(redis.admin, process, operations);
  const token = expect.stringMatching(/^\d{16}$/);
  const queued = expect.stringMatching(/^q\d{17,}(?: (?:\w+(?: \d+)?|\+\d+))?$/);
  /** Matches a refusal caused by this exclusive holder. */
  const refusedBy = (holder: string) => expect.stringMatching(new RegExp(`^b ${holder} \\d+$`));
  const now = () => serverTime(redis.admin);

  it('a lone acquire returns the token, and a lone release whether the lock was held', async () => {
    expect(await run(HERE, ['A3000', 'one', 60_000])).toEqual(token);
    expect(await redis.admin.get(LOCK)).toMatch(/^p\d{16}one$/);
    expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(50_000);
    expect(await run(HERE, ['R', 'other', 0])).toEqual([0]);
    expect(await run(HERE, ['R', 'one', 0])).toBe(1);
    expect(await redis.admin.exists(LOCK)).toBe(0);
  });

  it('a repeated acquire returns the remaining lease, and renews nothing', async () => {
    const first = await run(HERE, ['A3000', 'one', 60_000]);
    await redis.admin.pexpire(LOCK, 20_000);
    const again = (await run(HERE, ['A3000', 'one', 60_000])) as string[];
    expect(again[0]?.slice(0, 17)).toBe(`h${String(first)}`);
    expect(Number(again[0]?.slice(17))).toBeLessThanOrEqual(20_000);
  });

  it("operations of one call run in order, and grants to the caller's process come at the end of the reply", async () => {
    expect(await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000], ['T', 'three', 60_000])).toEqual([
      token,
      queued,
      refusedBy('one'),
    ]);
    expect(await run(HERE, ['R', 'one', 0], ['A3000', 'four', 60_000])).toEqual([
      1,
      queued,
      expect.stringMatching(/^\d{34}3000:two lock:\{1\}:k$/),
    ]);
    // A provisional lease ends after 3 s. Its record stays for 10 s more.
    const provisional = String(await redis.admin.get(LOCK));
    expect(provisional).toMatch(/^c\d{29}aaaaaaaaaaaatwo$/);
    // The server may round one of the two times.
    expect((await redis.admin.pexpiretime(LOCK)) - Number(provisional.slice(17, 30)) - 10_000).toBeCloseTo(0, -1);
  });

  it('a confirmation turns a provisional lease into a whole lease, and is refused to anyone but its holder', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000]);
    await run(HERE, ['R', 'one', 0]);
    expect(await run(HERE, ['C', 'one', 9_000])).toEqual([0]);
    expect(await run(HERE, ['C', 'two', 9_000])).toEqual([expect.stringMatching(/^h\d{16}9000$/)]);
    expect(await redis.admin.get(LOCK)).toMatch(/^w\d{16}two$/);
    expect(await redis.admin.pttl(LOCK)).toBeLessThanOrEqual(9_000);
  });

  it.each([
    ['an extended exclusive lease', 'A3000', 'C', /^p/],
    ['the extended lease of the only limited holder', 'l3000 1 2', 'C 1 2', /^o/],
    ['an extended lease with minHold', 'B3000m:0:30000', 'C30000', /^p/],
  ])('a renewal that arrives late does not shorten %s, but is a write for WAIT', async (_, acquire, renew, record) => {
    const writes = async () => {
      const info = await redis.admin.info('persistence');
      return Number(/rdb_changes_since_last_save:(\d+)/.exec(info)?.[1]);
    };
    await run(HERE, [acquire, 'one', 60_000]);
    expect(await run(HERE, [renew, 'one', 600_000])).toEqual([expect.stringMatching(/^h\d{16}600000$/)]);
    const before = await writes();
    expect(await run(HERE, [renew, 'one', 60_000])).toEqual([expect.stringMatching(/^h\d{16}60000$/)]);
    expect(await writes()).toBeGreaterThan(before);
    expect(await redis.admin.get(LOCK)).toMatch(record);
    expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(300_000);
  });

  it('a process that does not listen is removed until it polls; without another waiter, the lock is free', async () => {
    await run(HERE, ['A3000', 'one', 60_000]);
    await run(THERE, ['A3000', 'two', 60_000]);
    expect(await run(HERE, ['R', 'one', 0])).toEqual([1]);
    expect(await redis.admin.exists(LOCK, `${LOCK}}q`)).toBe(0);
    // A caller that does not wait may get the lock meanwhile, since no live waiter is queued.
    expect(await run(HERE, ['T', 'three', 60_000])).toEqual(token);
    await run(HERE, ['R', 'three', 0]);
    // A process that polls is live.
    expect(await run(THERE, ['A3000:1000000', 'two', 60_000])).toEqual(token);
  });

  const order = () => redis.admin.zrange(`${LOCK}}q`, '0', '-1');
  const [two, three] = [`x${HERE}3000:two`, `x${THERE}3000:three`];

  it('an entry is ordered by when its oldest caller arrived, which each poll updates', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000:5000000', 'two', 60_000]);
    const asked = await now();
    await run(THERE, ['A3000:2500000', 'three', 60_000]);
    expect(Number(await redis.admin.zscore(`${LOCK}}q`, three)) / 1_000).toBeGreaterThanOrEqual(asked - 2_500);
    expect(Number(await redis.admin.zscore(`${LOCK}}q`, three)) / 1_000).toBeLessThanOrEqual((await now()) - 2_500);
    expect(await order()).toEqual([two, three]);
    // The oldest caller of the first process has left.
    await run(HERE, ['A3000:1000000', 'two', 60_000]);
    expect(await order()).toEqual([three, two]);
    await redis.admin.del(`${LOCK}}q`);
    // A minute older, since the machine may be slow between the two requests.
    await run(HERE, ['A3000:1100000', 'two', 60_000]);
    await run(THERE, ['A3000:61100000', 'three', 60_000]);
    expect(await order()).toEqual([three, two]);
  });

  it('of two requests for one caller, the earlier place counts, so a delayed request does not lose it', async () => {
    await run(THERE, ['A3000', 'one', 60_000]);
    await run(HERE, ['A3000:2000000', 'two', 60_000]);
    await run(THERE, ['A3000:1990000', 'three', 60_000]);
    // The request's age was read 50 ms before it arrived.
    await run(HERE, ['A3000:=1950000', 'two', 60_000]);
    expect(await order()).toEqual([two, three]);
    // A minute older, since the machine may be slow between the requests.
    await run(THERE, ['A3000:=62100000', 'three', 60_000]);
    expect(await order()).toEqual([three, two]);
    await redis.admin.del(`${LOCK}}q`);
    await run(HERE, ['A3000:=1000000', 'two', 60_000]);
    expect(await order()).toEqual([two]);
  });

  it("a process that requests before it releases keeps its caller's place, and loses it in the opposite order", async () => {
    const waits = async (process: string, name: string, age: number) => {
      await run(process, [`N3000:${age}::1`, name, 60_000]);
    };
    for (const [operations, next] of [
      [
        [
          ['N3000:60000000::1', 'second', 60_000],
          ['R', 'first', 0],
        ],
        'second',
      ],
      [
        [
          ['R', 'first', 0],
          ['N3000:60000000::1', 'second', 60_000],
        ],
        'other',
      ],
    ] as const) {
      const listener = redis.admin.duplicate();
      await listener.subscribe(`${COUNTER}${THERE}`);
      await run(HERE, ['A3000', 'first', 60_000]);
      await waits(THERE, 'other', 1_000_000);
      await run(HERE, ...operations);
      expect(await redis.admin.get(LOCK)).toMatch(new RegExp(`^c\\d{29}\\w{12}${next}$`));
      await run(HERE, ['F', '', 0], ['F', '', 0], ['F', '', 0]);
      await redis.admin.flushall();
      listener.disconnect();
    }
  });

  it('an unknown mode letter blocks the queue while its process lives, whatever is queued behind it', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000]);
    await redis.admin.zadd(`${LOCK}}q`, 1, `z${HERE}3000:later`);
    expect(await run(HERE, ['R', 'one', 0])).toEqual([1]);
    expect(await redis.admin.exists(LOCK)).toBe(0);
    expect(await run(HERE, ['T', 'three', 60_000], ['A3000', 'four', 60_000], ['a3000', 'five', 60_000])).toEqual([
      'b',
      queued,
      queued,
    ]);
    // Once it leaves, the next inspection serves those behind it.
    await redis.admin.zrem(`${LOCK}}q`, `z${HERE}3000:later`);
    expect(await run(HERE, ['I', '', 0])).toEqual([
      expect.stringMatching(/^held exclusive 1 2 /),
      expect.stringMatching(/^\d{34}3000:two lock:\{1\}:k$/),
    ]);
  });

  it('an unknown mode letter is removed with its process', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000]);
    await redis.admin.zadd(`${LOCK}}q`, 1, `z${THERE}3000:later`);
    expect(await run(HERE, ['R', 'one', 0])).toEqual([1, expect.stringMatching(/^\d{34}3000:two lock/)]);
    expect(await redis.admin.exists(`${LOCK}}q`)).toBe(0);
  });

  it('a block has as many tokens as callers requested, and its last token is stored; a handoff grants one token while the counter is ahead of the clock', async () => {
    const tokenOf = (reply: unknown) => BigInt(String(reply).slice(0, 16));
    await redis.admin.set(COUNTER, '8000000000000000');
    const [last] = (await run(HERE, ['N3000:0::5', 'one', 60_000])) as string[];
    // The block's first token is larger than all before.
    expect(tokenOf(last) - 4n).toBeGreaterThan(8_000_000_000_000_000n);
    expect(await redis.admin.get(LOCK)).toBe(`p${last}one`);
    expect(BigInt(String(await redis.admin.get(COUNTER)))).toBeGreaterThanOrEqual(tokenOf(last));
    // A lock that is found again returns the last token, however many callers are requested now.
    expect(await run(HERE, ['N3000:0::64', 'one', 60_000])).toEqual([expect.stringMatching(new RegExp(`^h${last}`))]);
    const before = BigInt(String(await redis.admin.get(COUNTER)));
    const notice = ((await run(HERE, ['N3000:0::2', 'two', 60_000], ['R', 'one', 0])) as string[])[2];
    // The counter is ahead of the clock, which would never catch up with blocks of 64.
    expect(String(notice).slice(32, 34)).toBe('01');
    expect(tokenOf(notice)).toBeGreaterThan(before);
    expect((await redis.admin.get(LOCK))?.slice(1, 17)).toBe(String(notice).slice(0, 16));
    expect(BigInt(String(await redis.admin.get(COUNTER)))).toBeGreaterThanOrEqual(tokenOf(notice));
    // Another process always gets a larger token.
    await run(HERE, ['R', 'two', 0]);
    expect(tokenOf(await run(THERE, ['A3000', 'three', 60_000]))).toBeGreaterThan(tokenOf(notice));
  });

  it.each([
    ['an exclusive request', 'A3000:0', 64],
    ['a request for several callers', 'N3000:0::2', 64],
    ['a request with minHold', 'B3000m:0:600000', 1],
    ['a shared request', 'a3000:0', 1],
    ['a limited request', 'l3000 1 2:0', 1],
  ])('a handoff to %s grants as many tokens as its process may serve callers', async (_, code, tokens) => {
    await run(HERE, ['A3000', 'one', 60_000], [code, 'two', 60_000]);
    const held = BigInt((await redis.admin.get(LOCK))!.slice(1, 17));
    const [, notice] = (await run(HERE, ['R', 'one', 0])) as string[];
    expect(Number(String(notice).slice(32, 34))).toBe(tokens);
    expect(BigInt(String(notice).slice(0, 16)) - BigInt(tokens - 1)).toBeGreaterThan(held);
  });

  it('minHold outlasts a shorter lease and a renewal, and a retained lock has no holder', async () => {
    expect(await run(HERE, ['U::600000', 'one', 1_000])).toEqual([token]);
    expect(await run(HERE, ['C', 'one', 1_000])).toEqual([expect.stringMatching(/1000$/)]);
    expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(500_000);
    expect(await run(HERE, ['R', 'one', 70_000])).toEqual([1]);
    expect(await redis.admin.get(LOCK)).toMatch(/^k/);
    expect(await redis.admin.pttl(LOCK)).toBeLessThanOrEqual(70_000);
    expect(await run(HERE, ['C', 'one', 1_000], ['T', 'two', 1_000])).toEqual([0, 'b']);
    expect(await run(HERE, ['F', '', 0], ['F', '', 0])).toEqual([1, 0]);
    expect(await redis.admin.exists(LOCK)).toBe(0);
  });

  it('readers share one token, and the last one frees the lock', async () => {
    const [first, second] = (await run(HERE, ['a3000', 'one', 60_000], ['t', 'two', 60_000])) as string[];
    expect(first).toBe(second);
    expect(await run(HERE, ['I', '', 0])).toEqual([
      expect.stringMatching(/^held shared 2 0 \d+ \d{16} \d{16} one,two$/),
    ]);
    expect(await run(HERE, ['T', 'three', 60_000])).toEqual(['b +2']);
    expect(await run(HERE, ['r', 'one', 0], ['r', 'one', 0], ['r', 'two', 0])).toEqual([1, 0, 1]);
    expect(await redis.admin.keys(`${LOCK}*`)).toEqual([]);
  });

  it('limited holders share one token, use no more than the smallest limit, and the last one frees the lock', async () => {
    const [first, second] = (await run(HERE, ['l3000 1 2', 'one', 60_000], ['m3000 1 3', 'two', 60_000])) as string[];
    expect(first).toEqual(token);
    expect(second).toBe(first);
    expect(await run(HERE, ['m3000 1 3', 'three', 1], ['T', 'four', 1], ['t', 'five', 1])).toEqual([
      'b +2',
      'b +2',
      'b +2',
    ]);
    expect(await run(HERE, ['I', '', 0])).toEqual([
      expect.stringMatching(/^held limited 2 0 \d+ \d{16} \d{16} one 1 2,two 1 3 2 2$/),
    ]);
    expect(await run(HERE, ['l3000 1 2', 'one', 1], ['C 1 3', 'two', 90_000])).toEqual([
      expect.stringMatching(new RegExp(`^h${first}\\d+$`)),
      `h${second}90000`,
    ]);
    expect(await run(HERE, ['e 1 2', 'one', 0], ['e 1 2', 'one', 0], ['e 1 3', 'two', 0])).toEqual([1, 0, 1]);
    expect(await redis.admin.keys(`${LOCK}*`)).toEqual([]);
  });

  it('limited waiters that fit are granted together, up to the smallest limit', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['l3000 1 3:3000', 'two', 60_000], ['l3000 1 2:2000', 'three', 60_000]);
    await run(HERE, ['l3000 1 3', 'four', 60_000]);
    expect(await run(HERE, ['R', 'one', 0])).toEqual([
      1,
      expect.stringMatching(/^\d{34}3000:two lock:\{1\}:k$/),
      expect.stringMatching(/^\d{34}3000:three lock:\{1\}:k$/),
    ]);
    // The waiter has a limit of three, but a current holder has a limit of two.
    expect(await run(HERE, ['e 1 3', 'two', 0])).toEqual([1, expect.stringMatching(/^\d{34}3000:four lock:\{1\}:k$/)]);
    expect(await redis.admin.zcard(`${LOCK}}q`)).toBe(0);
  });

  it('a process that no longer knows the terms of a limited request frees the place that it was granted', async () => {
    const ask = (name: string, age: number): Operation => [`l3000 1 2:${age}`, name, 60_000];
    await run(HERE, ['A3000', 'one', 60_000], ask('two', 3_000), ask('three', 2_000), ask('four', 1_000));
    await run(HERE, ['R', 'one', 0]);
    // Another process, and an id that only starts like the request's.
    expect(await run(THERE, ['R', 'two', 0])).toEqual([0]);
    expect(await run(HERE, ['R', 'tw', 0])).toEqual([0]);
    expect(await run(HERE, ['R', 'two', 0])).toEqual([1, expect.stringMatching(/^\d{34}3000:four lock:\{1\}:k$/)]);
    expect(await run(HERE, ['R', 'three', 0], ['R', 'four', 0])).toEqual([1, 1]);
    expect(await redis.admin.exists(LOCK, `${LOCK}}r`)).toBe(0);
  });

  it('a call that finds an expired holder grants the lock to the waiter, whatever the call is', async () => {
    for (const [index, code] of (['C 1 2', 'l3000 1 2'] as const).entries()) {
      // In one call, so the short lease has not ended before the waiter is queued.
      const ask = (name: string, lease: number): Operation => ['l3000 1 2', `${name}${index}`, lease];
      await run(HERE, ask('short', 30), ask('long', 60_000), ask('waiter', 60_000));
      const ends = await redis.admin.zscore(`${LOCK}}r`, `hshort${index} 1 2`);
      await until(async () => (await now()) > Number(ends), 'a lease is over');
      expect(await run(HERE, [code, `long${index}`, 60_000])).toEqual([
        expect.stringMatching(/^h/),
        expect.stringMatching(new RegExp(`^\\d{34}3000:waiter${index} lock`)),
      ]);
      await run(HERE, ['F', '', 0]);
    }
  });

  it('holders of an evicted lock are ignored', async () => {
    await run(HERE, ['a3000', 'reader', 60_000]);
    await redis.admin.del(LOCK);
    expect(await run(HERE, ['l3000 1 3', 'one', 60_000])).toEqual(token);
    expect(await run(HERE, ['C', 'reader', 60_000], ['m3000 1 3', 'two', 60_000])).toEqual([0, token]);
  });

  it('a release grants the lock to hundreds of limited waiters in one call, reading each waiter once', async () => {
    await run(HERE, ['A3000', 'one', 60_000]);
    const waiters = Array.from({ length: 300 }, (_, index): Operation => ['l3000 1 300', `w${index}`, 60_000]);
    await run(HERE, ...waiters);
    await redis.admin.config('RESETSTAT');
    expect(await run(HERE, ['R', 'one', 0])).toHaveLength(301);
    expect(await redis.admin.info('commandstats')).toMatch(/cmdstat_zrange:calls=[1-4],/);
  });

  it('a process that polls after a pause counts as live for the full time', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000]);
    await redis.admin.zadd(`${COUNTER}seen`, '1', HERE);
    await redis.admin.pexpire(`${COUNTER}seen`, 100);
    await redis.admin.pexpire(`${LOCK}}q`, 100);
    await run(HERE, ['A3000', 'three', 60_000]);
    expect(await redis.admin.pttl(`${COUNTER}seen`)).toBeGreaterThan(5_000);
    expect(await redis.admin.pttl(`${LOCK}}q`)).toBeGreaterThan(5_000);
    expect(Number(await redis.admin.zscore(`${COUNTER}seen`, HERE))).toBeGreaterThan(Date.now() - 5_000);
  });

  it('every record of waiting expires', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000], ['a3000', 'three', 60_000]);
    await run(HERE, ['R', 'one', 0]);
    for (const key of await redis.admin.keys('*')) {
      if (key !== COUNTER) expect([key, await redis.admin.pttl(key)]).toEqual([key, expect.any(Number)]);
      if (key !== COUNTER) expect(await redis.admin.pttl(key)).toBeGreaterThan(0);
    }
  });
});
