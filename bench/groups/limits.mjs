// Limited locks on Redis, compared with the Semaphore of redis-semaphore with its defaults in the same run. Each has
// its own process, and both take turns, so that other load on the machine affects both. The server runs on core 0, the
// clients on core 1.
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { builds, OURS } from '../builds.mjs';
import { each, startEach } from '../candidate-process.mjs';
import { gaveUpNotes, loop, loopRounds, oneCaller, rampUp } from '../loads.mjs';
import { interleave, lasting, mapped } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { SCRIPTS } from '../redis/candidates.mjs';
import { reportLoops } from '../report-loops.mjs';
import { about, report, versionOf } from '../results.mjs';

const PEER = 'redis-semaphore';
const LIMIT = 4;
const CALLERS = 16;
const CROWD = { limit: 100, callers: 1_000, hold: 5 };

const server = pinned(await startRedisServer());
const names = [...builds, ...(ensurePeers() ? [PEER] : [])];
const CANDIDATES = new URL('../redis/limits.mjs', import.meta.url);
/** Includes what this library sends, sent by bare ioredis. */
const by = await startEach(CANDIDATES, [...names, SCRIPTS], server.port, LIMIT);

about({
  versions: { ioredis: versionOf('ioredis'), ...(by[PEER] && { [PEER]: versionOf(PEER, 'peers') }) },
  settings: `redis-server without persistence; a limit of ${LIMIT}, leases of 10 s; the Semaphore has its defaults: it polls every 10 ms while it waits`,
});

const alone = await interleave(each(by, [...names, SCRIPTS], oneCaller, lasting(100)), { rounds: 31 });
const { [SCRIPTS]: sameScripts, ...others } = alone;
report({
  what: `One caller of a limit of ${LIMIT}, acquire + release`,
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  bar: { atLeast: 0.9, of: 'best' },
  rounds: others,
});
report({
  what: `One caller of a limit of ${LIMIT}, beside the same two scripts sent by bare ioredis`,
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  base: SCRIPTS,
  bar: { atLeast: 0.9, of: 'base' },
  rounds: { [SCRIPTS]: sameScripts, [OURS]: alone[OURS] },
});

const loops = await interleave(each(by, names, loop, { callers: CALLERS, milliseconds: lasting(1_000) }), {
  rounds: 5,
});
reportLoops(`${CALLERS} waiters looping on a limit of ${LIMIT} in one process`, loopRounds(loops), {
  speed: { bar: { atLeast: 1.5, of: 'best' } },
  fairness: { bar: { atLeast: 0.95 } },
});

const crowds = await startEach(CANDIDATES, names, server.port, CROWD.limit);
const ramps = await interleave(each(crowds, names, rampUp, CROWD), { rounds: 5 });
const crowd = `${CROWD.callers.toLocaleString('en')} callers at once on a limit of ${CROWD.limit}`;
for (const [part, words] of [
  ['full', `until ${CROWD.limit} hold it`],
  ['all', `until each has held it for ${CROWD.hold} ms`],
]) {
  report({
    what: `${crowd}, ${words}`,
    unit: 'ms',
    better: 'less',
    ours: OURS,
    rounds: mapped(ramps, (ramp) => ramp[part]),
    notes: gaveUpNotes(ramps, CROWD.callers),
  });
}

for (const candidate of [...Object.values(by), ...Object.values(crowds)]) await candidate.stop();
await server.stop();
