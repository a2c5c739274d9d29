import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const CHAOS = fileURLToPath(new URL('../../chaos/', import.meta.url));

describe('a worker', () => {
  it('exits when its coordinator dies during the drain', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
    const path = join(folder, 'resource.sock');
    const resource = fork(join(CHAOS, 'judge/resource.mjs'), [path, join(folder, 'history.jsonl')], { execArgv: [] });
    await once(resource, 'message');
    // Its client reconnects forever, as those of most providers do.
    const settings = { subject: 'naive', ports: [1], resource: path, worker: 'w1/1', seed: '1', clients: 0, keys: [] };
    const worker = fork(join(CHAOS, 'fleet/worker.mjs'), [JSON.stringify(settings)], {
      execArgv: ['--import', join(CHAOS, 'typescript.mjs')],
    });
    const ended = once(worker, 'exit');
    try {
      await once(worker, 'message');
      worker.send({ type: 'drain' });
      await once(worker, 'message');
      worker.disconnect();
      // Bounded, so that a worker that stays does not outlive the test.
      expect(await Promise.race([ended, sleep(40_000)])).toEqual([0, null]);
    } finally {
      worker.kill('SIGKILL');
      resource.kill('SIGKILL');
      await rm(folder, { recursive: true });
    }
  });
});
