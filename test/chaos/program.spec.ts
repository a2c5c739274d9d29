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

describe('chaos program', () => {
  it('rejects an unknown fault before it starts anything', () => {
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

  describe('--judge', () => {
    let folder: string;
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
    });
    afterAll(() => rm(folder, { recursive: true }));

    /** Sequential sections of one caller. In a broken history, another caller enters each of them. */
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

    it('judges a history of the subject named in its head, and names its file if it is broken', async () => {
      const good = await history('good', [head], false);
      expect(run('--judge', good)).toMatchObject({ status: 0, stdout: expect.stringContaining('### memory') });
      const bad = await history('bad', [head], true);
      expect(run('--judge', bad)).toMatchObject({ status: 1, stdout: expect.stringContaining(bad) });
      await expect(Promise.all([readFile(good), readFile(bad)])).resolves.toHaveLength(2);
    });

    it('judges a history without a head as the subject named with --provider', async () => {
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

describe('chaos worker', () => {
  it('exits when its coordinator dies during the drain', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
    const path = join(folder, 'resource.sock');
    const resource = fork(join(CHAOS, 'judge/resource.mjs'), [path, join(folder, 'history.jsonl')], { execArgv: [] });
    await once(resource, 'message');
    // Its client reconnects forever, as most providers' clients do.
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
      // Bounded, so that a stuck worker doesn't outlive the test.
      expect(await Promise.race([ended, sleep(40_000)])).toEqual([0, null]);
    } finally {
      worker.kill('SIGKILL');
      resource.kill('SIGKILL');
      await rm(folder, { recursive: true });
    }
  });
});

// Plain JavaScript without types, like the programs.
const REPORT: string = '../../chaos/report.mjs';
const CHECKER: string = '../../chaos/judge/checker.mjs';
const SUBJECTS: string = '../../chaos/subjects/index.mjs';
const FAULTS: string = '../../chaos/faults/index.mjs';

async function isAsExpected(control: readonly string[] | undefined, broken: readonly string[], sections = 50) {
  const report = (await import(REPORT)) as { isAsExpected(result: object): boolean };
  const violations = broken.map((rule) => ({ rule }));
  return report.isAsExpected({ subject: { control }, verdict: { violations, counts: { sections } } });
}

describe('expected results', () => {
  it('expects a provider to break no rule, in enough sections', async () => {
    expect(await isAsExpected(undefined, [])).toBe(true);
    expect(await isAsExpected(undefined, [], 49)).toBe(false);
    expect(await isAsExpected(undefined, ['leak'])).toBe(false);
  });

  it('expects a control to break all the rules that it is known to break', async () => {
    expect(await isAsExpected(['overlap', 'stale'], ['stale', 'late', 'overlap'])).toBe(true);
    expect(await isAsExpected(['overlap', 'stale'], ['overlap', 'unexpected'])).toBe(false);
    expect(await isAsExpected(['overlap', 'stale'], [])).toBe(false);
  });
});

it('prints the random conditions of a run', async () => {
  const report = (await import(REPORT)) as { conditionLines(verdict: object): readonly string[] };
  const { Checker } = (await import(CHECKER)) as { Checker: new (subject: object) => { observe(entry: object): void } };
  const verdict = new Checker({});
  expect(report.conditionLines(verdict)).toEqual([]);
  verdict.observe({ at: 0, event: 'conditions', conditions: { sql_mode: 'ANSI_QUOTES,ORACLE' } });
  expect(report.conditionLines(verdict)).toEqual([`With sql_mode = 'ANSI_QUOTES,ORACLE'`]);
});

it('prints how many cycles were judged', async () => {
  const report = (await import(REPORT)) as { cycleLines(verdict: object): readonly string[] };
  expect(report.cycleLines({})).toEqual([]);
  const cycles = { refused: 7, calm: 4, ended: 120, together: 2_548, busy: 30 };
  expect(report.cycleLines({ cycles })).toEqual([
    '7 callers were refused because of a cycle, and 30 waited in vain',
    'No fault affected 4 of these cycles: they lasted for at least 2548 ms and ended at most 120 ms before the refusal',
  ]);
});

it('prints when the servers had different data', async () => {
  const report = (await import(REPORT)) as { disagreementLines(verdict: object): readonly string[] };
  const disagreements = [
    { at: 1_000.4, disagreement: ['/lock/a/n is on 2 of 3 servers', '/lock/b/n is on 1 of 3 servers'] },
  ];
  expect(report.disagreementLines({ disagreements: [] })).toEqual([]);
  expect(report.disagreementLines({ disagreements })).toEqual([
    'The servers disagreed in the quiet phase before 1000 ms: /lock/a/n is on 2 of 3 servers, and 1 more',
  ]);
});

it('lists only existing faults for each subject', async () => {
  const { subjects } = (await import(SUBJECTS)) as { subjects: Record<string, { faults: readonly string[] }> };
  const { faults } = (await import(FAULTS)) as { faults: Map<string, unknown> };
  const named = Object.values(subjects).flatMap((subject) => subject.faults);
  expect(named.filter((name) => !faults.has(name))).toEqual([]);
});

it('lists existing rules for each control', async () => {
  const { subjects } = (await import(SUBJECTS)) as { subjects: Record<string, { control?: readonly string[] }> };
  expect(subjects['naive']?.control).toEqual(['overlap', 'stale']);
  expect(subjects['naive-deadlock']?.control).toEqual(['false-alarm']);
  expect(subjects['redlock-package']?.control).toEqual(['late']);
});

it('records how long an event loop was blocked', async () => {
  const { faults } = (await import(FAULTS)) as { faults: Map<string, { end?: unknown }> };
  expect(faults.get('event loop blocked')?.end).toBeInstanceOf(Function);
});

interface Result {
  readonly total: object;
  readonly byRule: object;
  readonly faults: readonly object[];
}

describe('result of a run', () => {
  const fault = { name: 'worker paused', sections: 10, overstays: 1, refused: 2, violations: 1 };
  const verdict = {
    counts: { sections: 30, overstays: 2, refused: 4 },
    faults: [{ ...fault, recovery: 12.4 }, { ...fault, recovery: 99.6 }, fault],
    violations: [{ rule: 'late' }, { rule: 'late' }, { rule: 'stale' }],
    excused: [{ under: 'worker paused' }, { under: 'no fault' }],
  };

  it('is counted by fault, by rule, and in total', async () => {
    const { summarize } = (await import(REPORT)) as { summarize(verdict: object): Result };
    expect(summarize(verdict)).toEqual({
      total: { faults: 3, sections: 30, overstays: 2, documented: 2, refused: 4, violations: 3 },
      byRule: { late: 2, stale: 1 },
      faults: [
        {
          fault: 'worker paused',
          times: 3,
          sections: 30,
          overstays: 3,
          documented: 1,
          refused: 6,
          violations: 3,
          recoveryMedian: 100,
          recoveryMax: 100,
        },
      ],
    });
  });

  it('is a table with one row for each fault, and one for the total', async () => {
    const report = (await import(REPORT)) as { summarize(verdict: object): Result; faultTable(result: Result): string };
    const rows = report.faultTable(report.summarize(verdict)).split('\n');
    expect(rows[2]).toBe('| worker paused | 3 | 30 | 3 | 1 | 6 | 3 | 100 / 100 |');
    expect(rows[3]).toBe('| **all** | 3 | 30 | 2 | 2 | 4 | 3 |  |');
  });
});
