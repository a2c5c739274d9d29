import { expect } from '@jest/globals';
import { fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { HELD } from './hand-written.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

function run(...args: readonly string[]) {
  const program = ['--import', './chaos/typescript.mjs', 'chaos/run.mjs'];
  const { status, stdout, stderr } = spawnSync(process.execPath, [...program, ...args], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

describe('the program', () => {
  it('refuses an unknown fault before it starts anything', () => {
    const { status, stdout, stderr } = run('--provider', 'redis', '--fault', 'worker paused', '--fault', 'earthquake');
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain('redis has no fault "earthquake". Use one of: worker killed, worker paused');
  });

  it('prints its options for --help and for an unknown option', () => {
    expect(run('--help')).toMatchObject({ status: 0, stdout: expect.stringContaining('usage: npm run chaos') });
    const { status, stdout, stderr } = run('--providers', 'redis');
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toMatch(/^Unknown option '--providers'[^]*usage: npm run chaos/);
  });

  describe('judges a history', () => {
    let folder: string;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
    });
    afterAll(() => rm(folder, { recursive: true }));

    /** Sections of one caller, one after the other. In a broken history, another caller enters each of them. */
    async function history(name: string, head: readonly object[], isBroken: boolean) {
      const sections = Array.from({ length: 50 }, (_, index) => {
        const about = (worker: string) => ({ op: `${worker}/1.0.${index}`, key: 'a', mode: 'exclusive', token: null });
        const at = index * 10;
        const intruder = [
          { at: at + 3, event: 'attempt', ...about('w2') },
          { at: at + 4, event: 'enter', ...about('w2'), ...HELD },
          { at: at + 5, event: 'done', ...about('w2'), result: 'lost' },
        ];
        return [
          { at, event: 'attempt', ...about('w1') },
          { at: at + 1, event: 'enter', ...about('w1'), ...HELD },
          ...(isBroken ? intruder : []),
          { at: at + 6, event: 'leave', ...about('w1'), ...HELD },
          { at: at + 7, event: 'done', ...about('w1'), result: 'released' },
        ];
      });
      const file = join(folder, name);
      await writeFile(file, [...head, ...sections.flat()].map((entry) => `${JSON.stringify(entry)}\n`).join(''));
      return file;
    }
    const head = { at: 0, event: 'head', subject: 'memory', seed: '7', commit: 'abc' };

    it('of the subject that its head names, and keeps it', async () => {
      const good = await history('good', [head], false);
      expect(run('--judge', good)).toMatchObject({ status: 0, stdout: expect.stringContaining('### memory') });
      const bad = await history('bad', [head], true);
      expect(run('--judge', bad)).toMatchObject({ status: 1, stdout: expect.stringContaining(bad) });
      await expect(Promise.all([readFile(good), readFile(bad)])).resolves.toHaveLength(2);
    });

    it('without a head, of the subject that --provider names', async () => {
      const old = await history('old', [], false);
      expect(run('--judge', old)).toMatchObject({ status: 2, stderr: expect.stringContaining('--provider') });
      expect(run('--judge', old, '--provider', 'zookeeper')).toMatchObject({
        status: 0,
        stdout: expect.stringContaining('### zookeeper'),
      });
    });
  });
});

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
