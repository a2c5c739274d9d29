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
import { subjects } from './subjects/index.mjs';

const WORKERS = 3;
const KEYS = ['a', 'b', 'c'];
const STOPPED_WITHIN = 10_000;

/** The servers of a subject, the workers that use it, and the resource that judges them. `load` is what each worker's clients do. */
export async function openArena(name, { seed, library, ...load }) {
  const subject = subjects[name];
  const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
  const history = join(folder, `${name}-${seed}.jsonl`);
  const path = join(folder, 'resource.sock');
  const judgeProcess = fork(join(import.meta.dirname, 'judge/resource.mjs'), [path, history], { execArgv: [] });
  await once(judgeProcess, 'message');
  const resource = await connectToResource(path);
  await resource.tell({ event: 'head', subject: name, seed, commit: commit('lib', 'chaos') });
  const find = (rule, what) => resource.tell({ event: 'finding', rule, what });

  const backend = await subject.startBackend();
  const { servers, address } = backend;
  const realPorts = servers.map(({ port }) => port);
  const settings = { subject: name, resource: path, library, seed, keys: KEYS, ...load, address, realPorts };
  const fleet = new Fleet(settings, (what) => void find('unexpected', what));
  try {
    // Where servers tell clients where others are, there is no wire of ours in between.
    const ports = address === undefined ? realPorts : [];
    await fleet.start(subject.workers ?? WORKERS, ports);
  } catch (error) {
    await backend.stop();
    throw error;
  }

  return {
    subject,
    backend,
    fleet,
    resource,
    /** Everybody comes to an end, nobody asks any more: who waits without ever being served shows, and so does what was left behind. */
    async quiesce() {
      await resource.tell({ event: 'quiet' });
      for (const { name: worker, pending } of await fleet.drain(subject.recovery)) {
        if (pending === undefined) await find('stuck', `clients of ${worker} have not come to their end`);
        else if (pending > 0) await find('leak', `${worker} believes to hold or to await ${pending} locks`);
      }
      let left = await backend.leftovers();
      for (
        const until = performance.now() + (subject.forgets ?? subject.recovery);
        left.length > 0 && performance.now() < until;
      ) {
        await sleep(100);
        left = await backend.leftovers();
      }
      for (const what of left) await find('leak', what);
    },
    async close() {
      for (const worker of await fleet.stop(STOPPED_WITHIN)) await find('leak', `${worker} does not end by itself`);
      await backend.stop();
      resource.close();
      judgeProcess.send('end');
      await once(judgeProcess, 'exit');
    },
    /** What the checker says. */
    async verdict() {
      return Object.assign(await judge(history, subject), { history });
    },
    /** Everything is as expected: nobody will ask for the history. */
    forget: () => rm(folder, { recursive: true }),
  };
}
