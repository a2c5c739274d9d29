import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { commit } from '../scripts/commit.mjs';
import { Fleet } from './fleet/fleet.mjs';
import { judge } from './judge/read-history.mjs';
import { connectToResource } from './judge/resource-client.mjs';
import { seededRandom } from './random.mjs';
import { subjects } from './subjects/index.mjs';

const WORKERS = 3;
const KEYS = ['a', 'b', 'c'];
const STOP_TIMEOUT = 10_000;

/**
 * Starts a subject's servers, the workers that use them, and the resource that records the history. `load` describes
 * what each worker's clients do.
 */
export async function startEnvironment(name, { seed, library, ...load }) {
  const subject = subjects[name];
  const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
  const history = join(folder, `${name}-${seed}.jsonl`);
  const path = join(folder, 'resource.sock');
  const resourceProcess = fork(join(import.meta.dirname, 'judge/resource.mjs'), [path, history], { execArgv: [] });
  await once(resourceProcess, 'message');
  const resource = await connectToResource(path);
  await resource.record({ event: 'head', subject: name, seed, commit: commit('lib', 'chaos', ':!chaos/results') });
  const reportViolation = (rule, what) => resource.record({ event: 'violation', rule, what });

  const backend = await subject.startBackend({ random: seededRandom(`${seed}/${name}/servers`) });
  const { servers, address, conditions } = backend;
  if (conditions) await resource.record({ event: 'conditions', conditions });
  const realPorts = servers.map(({ port }) => port);
  const settings = {
    subject: name,
    resource: path,
    library,
    seed,
    keys: subject.keys ?? KEYS,
    ...load,
    address,
    realPorts,
  };
  const fleet = new Fleet(settings, (what) => void reportViolation('unexpected', what));
  try {
    // Servers that announce their addresses to clients are reached directly, without a proxy.
    await fleet.start(subject.workers ?? WORKERS, address === undefined ? servers : []);
  } catch (error) {
    await backend.stop();
    throw error;
  }

  return {
    subject,
    backend,
    fleet,
    resource,
    /** Lets running sections finish and starts no new ones. Starved waiters and leaked locks then become visible. */
    async quiesce() {
      await resource.record({ event: 'quiet' });
      for (const { name: worker, pending } of await fleet.drain(subject.recovery)) {
        if (pending === undefined) await reportViolation('stuck', `the clients of ${worker} did not finish`);
        else if (pending > 0) await reportViolation('leak', `${worker} still holds or waits for ${pending} locks`);
      }
      let remaining = await backend.remainingLocks();
      for (
        const until = performance.now() + (subject.cleanupWithin ?? subject.recovery);
        remaining.length > 0 && performance.now() < until;
      ) {
        await sleep(100);
        remaining = await backend.remainingLocks();
      }
      for (const what of remaining) await reportViolation('leak', what);
      const disagreement = await backend.disagreement?.();
      if (disagreement) await resource.record({ event: 'disagreement', disagreement });
    },
    async close() {
      for (const worker of await fleet.stop(STOP_TIMEOUT)) {
        await reportViolation('leak', `${worker} did not exit after stop()`);
      }
      await backend.stop();
      resource.close();
      resourceProcess.send('end');
      await once(resourceProcess, 'exit');
    },
    async verdict() {
      return Object.assign(await judge(history, subject), { history });
    },
    /** For a run that ended as expected, whose history isn't needed. */
    deleteHistory: () => rm(folder, { recursive: true }),
  };
}
