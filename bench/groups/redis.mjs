// Redis: ratios to the raw client, and to other libraries with their defaults, in the same run. Candidates take turns,
// so that other load on the machine affects all of them.
import { builds } from '../builds.mjs';
import { each } from '../candidate-process.mjs';
import { burst, burstTable, cpuOfCycle, loop, loopRounds, manyKeys, oneCaller } from '../loads.mjs';
import { interleave, lasting, mapped, median } from '../measure.mjs';
import { serverTime } from '../redis/server-time.mjs';
import { admin, by, NODE_REDIS, OURS, RAW, SCRIPTS, SENT, peerNames, start, stop } from '../redis/setup.mjs';
import { reportLoops } from '../report-loops.mjs';
import { report, reportAgainstBaseline } from '../results.mjs';

const ALL = [RAW, ...builds, ...peerNames];
const SEMAPHORE = 'redis-semaphore';
/** A library counts as fair if its longest wait is at most this many ms. */
const FAIR = 100;
const LOOPERS = 16;
/** How much faster than the baseline the loopers must be, by number of processes. */
const FASTER = { 1: 2, 2: 3, 4: 2.5 };

const alone = await interleave(each(by, [...ALL, NODE_REDIS, SCRIPTS, SENT], oneCaller, lasting(200)), { rounds: 15 });
const { [SCRIPTS]: sameScripts, [SENT]: sent, ...others } = alone;
report({
  what: 'One caller, acquire + release',
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  base: RAW,
  rounds: others,
});
report({
  what: 'One caller, beside the same two scripts sent by bare ioredis',
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  base: SCRIPTS,
  bar: { atLeast: 0.9, of: 'base' },
  rounds: { [SCRIPTS]: sameScripts, [OURS]: alone[OURS] },
});

report({
  what: "One caller, release: 'sent'",
  unit: 'cycles a second',
  better: 'more',
  ours: SENT,
  base: RAW,
  bar: { atLeast: 1.25, of: 'base' },
  // It confirms neither token nor order.
  rounds: { [RAW]: alone[RAW], ...(alone[SEMAPHORE] && { [SEMAPHORE]: alone[SEMAPHORE] }), [SENT]: sent },
});

for (const callers of [4, 8, 16, 32]) {
  // Each script is sent alone, unlike our code, which batches several.
  const { [SCRIPTS]: bare, ...rounds } = await interleave(
    each(by, [RAW, SCRIPTS, ...builds], manyKeys, lasting(200), callers),
    { rounds: 15 },
  );
  const what = `${callers} callers on ${callers} keys`;
  report({
    what,
    unit: 'cycles a second',
    better: 'more',
    ours: OURS,
    base: RAW,
    bar: { atLeast: 1, of: 'base' },
    rounds,
  });
  report({
    what: `${what}, beside the same scripts sent by bare ioredis`,
    unit: 'cycles a second',
    better: 'more',
    ours: OURS,
    base: SCRIPTS,
    rounds: { [SCRIPTS]: bare, [OURS]: rounds[OURS] },
  });
}

report({
  what: '64 callers on 64 keys',
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  base: RAW,
  bar: { atLeast: 1.5, of: 'base' },
  rounds: await interleave(each(by, [...ALL, NODE_REDIS], manyKeys, lasting(200)), { rounds: 15 }),
});

for (const callers of [1, 64]) await cpuTime(callers);
await bursts();
for (const processes of [1, 2, 4]) await loopers(processes);
await stop();

/** The CPU time of one cycle, in the client and in the server. */
async function cpuTime(callers) {
  const CYCLES = lasting(callers === 1 ? 4_000 : 20_000);
  const cost = async (name) => {
    const before = await serverTime(admin);
    const client = await by[name].run(cpuOfCycle, CYCLES, callers);
    return { client, server: ((await serverTime(admin)) - before) / CYCLES };
  };
  const names = [RAW, SCRIPTS, ...builds, NODE_REDIS];
  const costs = await interleave(Object.fromEntries(names.map((name) => [name, () => cost(name)])), { rounds: 7 });
  for (const side of ['client', 'server']) {
    const table = {
      what: `${callers === 1 ? 'One caller' : `${callers} callers`}: CPU time of a cycle, ${side}`,
      unit: 'µs a cycle',
      better: 'less',
      ours: OURS,
      base: RAW,
      rounds: mapped(costs, (cost) => cost[side]),
    };
    report(table);
    reportAgainstBaseline(table, side === 'client' && callers > 1 ? { atMost: 0.65 } : undefined);
  }
}

async function bursts() {
  const rounds = await interleave(each(by, ALL, burst, 16), { rounds: 15 });
  report({
    what: '16 callers at once on one key, until each has held it',
    unit: 'ms',
    better: 'less',
    ours: OURS,
    bar: { atMost: 2 },
    ...burstTable(rounds, 16),
  });

  const BURSTS = 20;
  const calls = {};
  for (const build of builds) {
    await admin.config('RESETSTAT');
    for (let round = 0; round < BURSTS; round += 1) await by[build].run(burst, 16);
    const sent = Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))[1]);
    calls[build] = [sent / (BURSTS * 16)];
  }
  report({
    what: '16 callers at once on one key',
    unit: 'script calls an acquisition',
    better: 'less',
    ours: OURS,
    bar: { atMost: 0.3 },
    rounds: calls,
  });
}

async function loopers(processes) {
  const run = (name) =>
    processes === 1
      ? by[name].run(loop, { callers: LOOPERS, milliseconds: lasting(1_000) })
      : inSeveral(name, processes);
  const results = await interleave(Object.fromEntries(ALL.map((name) => [name, () => run(name)])), {
    rounds: 3,
    // Processes that are started for this load warm up on their own.
    warmUp: processes === 1 ? undefined : 0,
  });
  const where = { 1: 'one process', 2: 'two processes', 4: 'four processes' }[processes];
  const rounds = loopRounds(results);
  reportLoops(`${LOOPERS} waiters looping on one key in ${where}`, rounds, {
    speed: {
      base: RAW,
      bar: { atLeast: 1, of: 'best' },
      // A library that lets one waiter starve is fast, because the same caller acquires again and again.
      peers: peerNames.filter((name) => median(rounds.longest[name]) <= FAIR),
    },
    overBaseline: { atLeast: FASTER[processes] },
    fairness: { bar: { atLeast: 0.98 } },
    longest: { bar: { atMost: FAIR } },
  });
}

async function inSeveral(name, count) {
  const processes = await Promise.all(Array.from({ length: count }, () => start(name)));
  const loops = (milliseconds) =>
    Promise.all(processes.map((each) => each.run(loop, { callers: LOOPERS / count, milliseconds })));
  // A long warm-up, because without it the compiler took four fifths of the time. It has two parts, because the end of
  // a load runs code that the load itself doesn't: the compiler then did its work again while the next load was being
  // measured.
  for (let part = 0; part < 2; part += 1) await loops(lasting(2_500));
  const parts = await loops(lasting(1_500));
  await Promise.all(processes.map((each) => each.stop()));
  return {
    counts: parts.flatMap(({ counts }) => counts),
    longest: Math.max(...parts.map(({ longest }) => longest)),
    seconds: Math.max(...parts.map(({ seconds }) => seconds)),
  };
}
