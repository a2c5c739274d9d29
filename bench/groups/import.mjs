// How much importing this package adds to the startup of a Nest application, compared with other libraries in the same
// run. Each import is measured in its own process, after the import of Nest. The libraries take turns.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { OURS } from '../builds.mjs';
import { interleave } from '../measure.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { about, report, versionOf } from '../results.mjs';

const WITH_REDIS = [OURS, `${OURS}/redis`];
const PEERS = ['redis-semaphore', 'murlock'];
const hasPeers = ensurePeers();

about({
  versions: {
    ...Object.fromEntries(['@nestjs/core', 'ioredis'].map((name) => [name, versionOf(name)])),
    ...(hasPeers && Object.fromEntries(PEERS.map((name) => [name, versionOf(name, 'peers')]))),
  },
  settings:
    'ms from the end of the import of Nest to that of the library, in a new process each time; files are cached by the system',
});

const measured = (candidates) =>
  interleave(Object.fromEntries(Object.entries(candidates).map(([name, modules]) => [name, () => timed(modules)])), {
    rounds: 15,
    warmUp: 1,
  });

report({
  what: 'Import after Nest, with the provider for Redis',
  unit: 'ms',
  better: 'less',
  ours: OURS,
  bar: { atMost: 60 },
  rounds: await measured({ [OURS]: WITH_REDIS }),
});

report({
  what: 'Import after Nest, each with its Redis client',
  unit: 'ms',
  better: 'less',
  ours: OURS,
  rounds: await measured({
    [OURS]: [...WITH_REDIS, 'ioredis'],
    ...(hasPeers && {
      'redis-semaphore': ['./peers/node_modules/redis-semaphore/lib/index.js', 'ioredis'],
      // murlock imports its client itself.
      murlock: ['./peers/node_modules/murlock/dist/index.js'],
    }),
  }),
});

function timed(modules) {
  const program = fileURLToPath(new URL('../importing.mjs', import.meta.url));
  return Number(execFileSync(process.execPath, [program, ...modules], { encoding: 'utf8' }));
}
