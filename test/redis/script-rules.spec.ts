import { expect } from '@jest/globals';
import { callScript, COUNTER, HERE, LOCK, THERE, type Operation, redisForTests, serverTime, until } from './seam.js';

const SEEN = `${COUNTER}seen`;
const QUEUE = `${LOCK}}q`;
const READERS = `${LOCK}}r`;

describe('rules of the lock script', () => {
  const redis = redisForTests();

  const run = (process: string, ...operations: Operation[]) => callScript(redis.admin, process, operations);
  const lone = async (process: string, ...operation: Operation) => {
    const reply = await run(process, operation);
    return Array.isArray(reply) ? (reply as unknown[])[0] : reply;
  };
  const now = () => serverTime(redis.admin);
  /** Records that `process` last polled `ms` ago. */
  const silentFor = async (process: string, ms: number) =>
    redis.admin.zadd(SEEN, Math.floor((await now()) - ms), process);
  const token = expect.stringMatching(/^\d{16}$/);
  const queued = expect.stringMatching(/^q\d{17,}(?: (?:\w+(?: \d+)?|\+\d+))?$/);
  const claimed = (holder: string) => expect.stringMatching(new RegExp(`^\\d{33,}:${holder} lock:\\{1\\}:k$`));

  it.each(['0', '12345'])(
    'tokens have all their digits after a reset of the counter to %s, and grow',
    async (reset) => {
      await redis.admin.set(COUNTER, reset);
      const begun = await now();
      const first = await lone(HERE, 'A3000', 'one', 60_000);
      expect(first).toEqual(token);
      expect(Number(first)).toBeGreaterThan(begun * 1_000);
      expect(await lone(HERE, 'R', 'one', 0)).toBe(1);
      expect(Number(await lone(HERE, 'A3000', 'two', 60_000))).toBeGreaterThan(Number(first));
    },
  );

  it.each([
    ['of a writer', 'A', 'x'],
    ['of a reader', 'a', 's'],
    ['of a limited holder', 'l', 'l'],
  ])("when a provisional lease %s ends, the holder's process is passed over from then on", async (_, letter) => {
    await run(HERE, ['A3000', 'one', 60_000]);
    await run(THERE, [letter === 'l' ? 'l1 1 2' : `${letter}1`, 'two', 60_000]);
    expect(await run(THERE, ['R', 'one', 0], ['I', '', 0])).toEqual([1, expect.anything(), claimed('two')]);
    await until(async () => (await lone(HERE, 'I', '', 0)) === '', 'the provisional lease is over');
    expect(Number(await redis.admin.zscore(SEEN, THERE))).toBeLessThanOrEqual((await now()) - 3_000);
  });

  it('one call removes all waiters of a process that has not polled for 3 s', async () => {
    await run(HERE, ['A3000', 'one', 60_000]);
    await run(THERE, ...Array.from({ length: 1_000 }, (_, index): Operation => ['A3000', `dead${index}`, 60_000]));
    await run(HERE, ['A3000', 'two', 60_000]);
    await silentFor(THERE, 3_001);
    expect(await run(HERE, ['R', 'one', 0])).toEqual([1, claimed('two')]);
    expect(await redis.admin.exists(QUEUE)).toBe(0);
  });

  it('a removed waiter returns with its age, and precedes waiters that arrived later', async () => {
    await run(HERE, ['A3000', 'one', 60_000]);
    expect(await lone(THERE, 'A3000:1000', 'two', 60_000)).toEqual(queued);
    await run(HERE, ['A3000', 'three', 60_000]);
    await silentFor(THERE, 4_000);
    await run(HERE, ['R', 'one', 0]);
    expect(await redis.admin.zcard(QUEUE)).toBe(0);
    await run(HERE, ['A3000:500000', 'four', 60_000]);
    expect(await lone(THERE, 'A3000:1000000', 'two', 60_000)).toEqual(queued);
    expect(await redis.admin.zrange(QUEUE, '0', '-1')).toEqual([`x${THERE}3000:two`, `x${HERE}3000:four`]);
  });

  it.each([
    ['held', [['A3000', 'one', 60_000]], 60_000],
    [
      'held by readers',
      [
        ['a3000', 'one', 20_000],
        ['a3000', 'two', 60_000],
      ],
      60_000,
    ],
    [
      'retained',
      [
        ['A3000', 'one', 60_000],
        ['R', 'one', 500_000],
      ],
      500_000,
    ],
    [
      'provisional',
      [
        ['A3000', 'one', 60_000],
        ['A3000', 'two', 60_000],
        ['R', 'one', 0],
      ],
      3_000,
    ],
  ] as const)('the reply to a queued request contains when a key that is %s becomes free', async (_, before, left) => {
    await run(HERE, ...before);
    const answer = String(await lone(HERE, 'A3000', 'waiter', 60_000));
    const [, freeIn] = /^q\d{16}(\d+)(?: \w+ \d+| \+\d+)?$/.exec(answer) ?? [];
    expect(Number(freeIn)).toBeLessThanOrEqual(left);
    expect(Number(freeIn)).toBeGreaterThan(left - 2_000);
  });

  it('requests with minHold are handed the lock one at a time', async () => {
    const attempt = (holder: string, age: number): Operation => [`B3000m:${age}:600000`, holder, 60_000];
    await run(HERE, ['A3000', 'one', 60_000], attempt('two', 2_000), attempt('three', 1_000));
    expect(await run(HERE, ['R', 'one', 0])).toEqual([1, claimed('two')]);
    await run(HERE, ['C600000', 'two', 60_000]);
    expect(await run(HERE, ['R3000m', 'two', 0])).toEqual([1, claimed('three')]);
  });

  it('a waiter whose process has no record is removed', async () => {
    await run(HERE, ['A3000', 'one', 60_000]);
    await run(THERE, ['A3000', 'two', 60_000]);
    await redis.admin.del(SEEN);
    expect(await lone(HERE, 'R1', 'one', 0)).toBe(1);
    expect(await redis.admin.exists(QUEUE)).toBe(0);
  });

  it('processes that have not polled for more than 10 s are forgotten when another one polls', async () => {
    const dead = Array.from({ length: 150 }, (_, index) => String(index).padStart(12, '0'));
    const at = await now();
    await redis.admin.zadd(SEEN, ...dead.flatMap((process) => [at - 11_000, process]));
    await redis.admin.zadd(SEEN, at - 5_000, THERE);
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000]);
    await run('cccccccccccc', ['A3000', 'three', 60_000]);
    expect((await redis.admin.zrange(SEEN, '0', '-1')).sort()).toEqual([HERE, THERE, 'cccccccccccc']);
  });

  it('a renewal that finds the lock lost grants it to the next waiter', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['A3000', 'two', 60_000]);
    await redis.admin.del(LOCK);
    expect(await run(HERE, ['C', 'one', 60_000])).toEqual([0, claimed('two')]);
  });

  it('a confirmation keeps the minHold of a handed-off lock, and so do renewals', async () => {
    await run(HERE, ['A3000', 'one', 60_000], ['B3000::600000', 'two', 1_000]);
    expect(await run(HERE, ['R', 'one', 0], ['I', '', 0])).toEqual([1, expect.anything(), claimed('two')]);
    for (const code of ['C600000', 'C']) {
      expect(await lone(HERE, code, 'two', 1_000)).toEqual(expect.stringMatching(/^h\d{16}1000$/));
      expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(500_000);
    }
  });

  describe('for readers', () => {
    it('a release honors keepFor: no writer gets the lock until it has passed', async () => {
      expect(await lone(HERE, 't', 'one', 600_000)).toEqual(token);
      expect(await lone(HERE, 'r', 'one', 70_000)).toBe(1);
      expect(await lone(HERE, 'C', 'one', 30_000)).toBe(0);
      expect(await lone(HERE, 'T', 'two', 5_000)).toBe('b');
      const [, ends] = await redis.admin.zrange(READERS, '0', '-1', 'WITHSCORES');
      expect(Number(ends) - (await now())).toBeGreaterThan(50_000);
      expect(Number(ends) - (await now())).toBeLessThanOrEqual(70_000);
    });

    it('a renewal never shortens minHold', async () => {
      expect(await lone(HERE, 't::600000', 'one', 1_000)).toEqual(token);
      expect(await lone(HERE, 'C', 'one', 1_000)).toEqual(expect.stringMatching(/^h\d{16}1000$/));
      expect(Number(await redis.admin.zscore(READERS, 'hone')) - (await now())).toBeGreaterThan(500_000);
    });

    it('the keys live as long as the latest record', async () => {
      await run(HERE, ['t', 'one', 20_000], ['t', 'two', 1_000]);
      expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(20_000);
      expect(await redis.admin.pttl(READERS)).toBeGreaterThan(20_000);
    });

    it('readers that have left retain the lock with one record, until the latest of their times', async () => {
      const readers = Array.from({ length: 20 }, (_, index) => `r${index}`);
      await run(HERE, ...readers.map((reader): Operation => ['t', reader, 60_000]));
      for (const [index, reader] of readers.entries()) await lone(HERE, 'r', reader, index === 3 ? 600_000 : 70_000);
      expect(await redis.admin.zrange(READERS, '0', '-1')).toEqual(['k']);
      expect(Number(await redis.admin.zscore(READERS, 'k')) - (await now())).toBeGreaterThan(500_000);
      expect(await lone(HERE, 'I', '', 0)).toMatch(/^retained shared 0 0 /);
    });

    it('a forced release frees all readers', async () => {
      await run(HERE, ['t', 'one', 20_000], ['t', 'two', 20_000]);
      expect(await lone(HERE, 'F', '', 0)).toBe(1);
      expect(await redis.admin.keys(`${LOCK}*`)).toEqual([]);
      expect(await run(HERE, ['C', 'one', 1_000], ['r', 'two', 0], ['T', 'three', 60_000])).toEqual([0, 0, token]);
      await lone(HERE, 'R', 'three', 0);
      // The old readers must not reappear with the next one.
      await run(HERE, ['t', 'four', 20_000]);
      expect(await redis.admin.zrange(READERS, '0', '-1')).toEqual(['hfour']);
    });

    it('a forced release grants the lock to the next waiter', async () => {
      expect(await run(HERE, ['t', 'one', 20_000], ['A3000', 'two', 60_000])).toEqual([token, queued]);
      expect(await run(HERE, ['F', '', 0])).toEqual([1, claimed('two')]);
    });
  });

  describe('for limited holders', () => {
    const limited = (holder: string, ms = 60_000, age = 0): Operation => [
      `l3000 1 2${age > 0 ? `:${age}` : ''}`,
      holder,
      ms,
    ];

    it('a renewal never shortens minHold, and the keys live as long as the latest record', async () => {
      expect(await lone(HERE, 'l3000 1 2::600000', 'one', 1_000)).toEqual(token);
      await run(HERE, limited('two', 20_000));
      expect(await lone(HERE, 'C 1 2', 'one', 1_000)).toEqual(expect.stringMatching(/^h\d{16}1000$/));
      expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(500_000);
    });

    it('full memory refuses new holders, and lets the others renew, leave and hand off', async () => {
      await run(HERE, limited('one'), limited('two'), limited('three', 60_000, 2_000), limited('four', 60_000, 1_000));
      await redis.admin.config('SET', 'maxmemory', '1');
      try {
        expect(await run(HERE, ['C 1 2', 'one', 90_000])).toEqual([expect.stringMatching(/^h\d{16}90000$/)]);
        expect(await run(HERE, ['e 1 2', 'one', 0])).toEqual([1, claimed('three')]);
        expect(await run(HERE, ['e 1 2', 'two', 70_000])).toEqual([1, 'k70000:four']);
        expect(await run(HERE, ['e 1 2', 'three', 0])).toEqual([1, claimed('four')]);
        await run(HERE, ['e 1 2', 'four', 0]);
        await expect(run(HERE, ['m3000 1 2', 'five', 1_000])).resolves.toEqual([expect.any(Error)]);
      } finally {
        await redis.admin.config('SET', 'maxmemory', '0');
      }
      expect(await lone(HERE, 'I', '', 0)).toMatch(/^retained limited 0 0 \d+ \d{16} \d{16}  1 2$/);
    });

    it('a waiter whose process does not listen is removed, and gets nothing', async () => {
      await run(HERE, limited('one'), limited('two'));
      await run(THERE, limited('three'));
      expect(await run(HERE, ['e 1 2', 'one', 0])).toEqual([1]);
      expect(await redis.admin.zrange(HOLDERS, '0', '-1')).toEqual(['htwo 1 2']);
      expect(await redis.admin.exists(QUEUE)).toBe(0);
    });

    const HOLDERS = `${LOCK}}r`;
    /** Returns the lock's value without its token, and its holders. */
    const records = async () => [
      (await redis.admin.get(LOCK))?.replace(/\d{16}/, ''),
      await redis.admin.zrange(HOLDERS, '0', '-1'),
    ];

    it('a lone holder has one key, the same through the short path as through the general one', async () => {
      for (const attempt of [limited('one', 1_000), ['m3000 1 2', 'one', 1_000]] as const) {
        expect(await run(HERE, attempt)).toEqual(token);
        const short = await records();
        expect(short).toEqual(['oone 1 2', []]);
        expect(await redis.admin.pttl(LOCK)).toBeGreaterThan(0);
        expect(await redis.admin.pttl(LOCK)).toBeLessThanOrEqual(1_000);
        expect(await run(HERE, ['e 1 2', 'one', 0])).toBe(1);
        // A call with two operations never takes the short path.
        await run(HERE, attempt, ['I', '', 0], attempt, ['F', '', 0], attempt);
        expect(await records()).toEqual(short);
        expect(await run(HERE, ['e 1 2', 'one', 0], ['I', '', 0])).toEqual([1, '']);
        expect(await redis.admin.exists(LOCK)).toBe(0);
      }
    });

    it('a lone holder is renewed and inspected without a record, and gets one with its lease when another holder arrives', async () => {
      const one = '1'.repeat(32);
      const first = await run(HERE, limited(one, 5_000));
      expect(await run(HERE, ['C 1 2', one, 60_000])).toEqual([`h${String(first)}60000`]);
      expect(await lone(HERE, 'I', '', 0)).toMatch(/^held limited 1 0 \d+ \d{16} \d{16} 1{12} 1 2$/);
      expect(await records()).toEqual([`o${one} 1 2`, []]);
      const before = await now();
      expect(await run(HERE, ['m3000 1 2', 'two', 1_000], ['m3000 1 2', 'three', 1_000])).toEqual([first, 'b +2']);
      expect(await records()).toEqual(['l 1 2', ['htwo 1 2', `h${one} 1 2`]]);
      const ends = Number(await redis.admin.zscore(HOLDERS, `h${one} 1 2`)) - before;
      expect(ends).toBeGreaterThan(40_000);
      expect(ends).toBeLessThanOrEqual(60_001);
      // Both keys outlive the last record.
      for (const key of [LOCK, HOLDERS]) expect(await redis.admin.pttl(key)).toBeGreaterThan(ends);
      expect(await run(HERE, ['e 1 2', one, 0], ['e 1 2', 'two', 0])).toEqual([1, 1]);
      expect(await redis.admin.exists(LOCK, HOLDERS)).toBe(0);
    });

    it('a lone holder can be waited for, renewed and succeeded when memory is full', async () => {
      await run(HERE, limited('one'));
      await redis.admin.config('SET', 'maxmemory', '1');
      try {
        expect(await run(HERE, ['C 1 2', 'one', 60_000])).toEqual([expect.stringMatching(/^h\d+60000$/)]);
        expect(await lone(HERE, 'A3000', 'two', 60_000)).toEqual(queued);
        expect(await run(HERE, ['e 1 2', 'one', 0])).toEqual([1, claimed('two')]);
      } finally {
        await redis.admin.config('SET', 'maxmemory', '0');
      }
    });

    it('a lone holder keeps out a reader and a writer, which get the lock when it leaves', async () => {
      for (const [code, release] of [
        ['A3000', 'R'],
        ['a3000', 'r'],
      ] as const) {
        await run(HERE, limited('one'));
        expect(await lone(HERE, code, 'two', 60_000)).toEqual(queued);
        expect(await run(HERE, ['e 1 2', 'one', 0])).toEqual([1, claimed('two')]);
        expect(await run(HERE, [release, 'two', 0])).toEqual([1]);
      }
    });

    it('the short path frees no lock that has ended, is unconfirmed, is retained, or has waiters', async () => {
      await run(HERE, limited('one', 20));
      await until(async () => (await redis.admin.exists(LOCK)) === 0, 'the lease is over');
      expect(await run(HERE, ['e 1 2', 'one', 0])).toEqual([0]);
      await run(HERE, limited('one'));
      expect(await run(HERE, ['e 1 2', 'on', 0])).toEqual([0]);
      expect(await run(HERE, ['e 1 3', 'one', 0])).toEqual([0]);
      await run(HERE, limited('two'), ['A3000', 'three', 60_000], ['e 1 2', 'two', 0]);
      expect(await run(HERE, ['e 1 2', 'one', 0])).toEqual([1, claimed('three')]);
      await run(HERE, limited('four'), ['R', 'three', 0]);
      expect(await run(HERE, ['e 1 2', 'four', 70_000])).toEqual([1]);
      expect(await run(HERE, ['e 1 2', 'four', 0])).toEqual([0]);
    });

    /** Returns how many bytes `work` appends to the AOF, which is also what replicas receive. */
    const written = async (work: () => Promise<unknown>) => {
      await redis.admin.config('SET', 'appendonly', 'yes', 'auto-aof-rewrite-percentage', '0');
      const persistence = async (field: string) =>
        Number(new RegExp(`^${field}:(\\d+)`, 'm').exec(await redis.admin.info('persistence'))?.[1]);
      await until(async () => (await persistence('aof_rewrite_in_progress')) === 0, 'the AOF is rewritten');
      await until(async () => (await persistence('aof_enabled')) === 1, 'the AOF is on');
      const before = await persistence('aof_current_size');
      await work();
      const bytes = (await persistence('aof_current_size')) - before;
      await redis.admin.config('SET', 'appendonly', 'no');
      expect(bytes).toBeGreaterThan(100);
      return bytes;
    };

    it('entering, renewing or leaving writes no other holder to the AOF', async () => {
      const enter = (holder: string): Operation => ['m3000 1 1000', holder, 60_000];
      await run(HERE, ...Array.from({ length: 300 }, (_, index) => enter(`holder${index}`)));
      const bytes = await written(async () => {
        await run(HERE, ['C 1 1000', 'holder150', 90_000]);
        await run(HERE, enter('another'));
        await run(HERE, ['e 1 1000', 'holder20', 0]);
      });
      expect(bytes).toBeLessThan(2_000);
    });

    it('a release that grants to a thousand waiters writes as much for each as for the first', async () => {
      const holder = (index: number) => String(index).padStart(32, '0');
      await run(HERE, ['l3000 1000 1000', 'one', 60_000]);
      for (let first = 0; first < 1_000; first += 100) {
        const some = Array.from({ length: 100 }, (_, index): Operation => [
          'l3000 1 1000',
          holder(first + index),
          60_000,
        ]);
        await run(HERE, ...some);
      }
      let granted: unknown;
      const bytes = await written(async () => {
        granted = await run(HERE, ['e 1000 1000', 'one', 0]);
      });
      expect(granted).toHaveLength(1_001);
      // 42 MB when each grant wrote all holders.
      expect(bytes / 1_000).toBeLessThan(500);
    });

    it('a call that has inspected hundreds of holders inspects no further lock', async () => {
      const enter = (holder: string): Operation => ['m3000 1 1000', holder, 60_000];
      const look: Operation = ['I', '', 0];
      await run(HERE, ...Array.from({ length: 10 }, (_, index) => enter(`holder${index}`)));
      expect(await run(HERE, look, look)).toEqual(
        Array.from({ length: 2 }, () => expect.stringMatching(/^held limited 10 /)),
      );
      await run(HERE, ...Array.from({ length: 490 }, (_, index) => enter(`another${index}`)));
      expect(await run(HERE, look, look)).toEqual([expect.stringMatching(/^held limited 500 /), 'a']);
    });

    it('a request reads no waiters while the limit is reached', async () => {
      await run(HERE, limited('one'), limited('two'), limited('three'));
      await redis.admin.config('RESETSTAT');
      await run(HERE, limited('four'), ['C 1 2', 'one', 60_000]);
      // The one call reads when the first holder's lease ends.
      expect(await redis.admin.info('commandstats')).toContain('cmdstat_zrange:calls=1,');
    });
  });
});
