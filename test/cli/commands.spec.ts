import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { ReadStream, WriteStream } from 'node:tty';
import type { LockInfo } from '../../lib/api/lock-info.js';
import type { Command } from '../../lib/cli/command.js';
import { doctor } from '../../lib/cli/commands/doctor.js';
import { free } from '../../lib/cli/commands/free.js';
import { inspect } from '../../lib/cli/commands/inspect.js';
import { jobs } from '../../lib/cli/commands/jobs.js';
import { list } from '../../lib/cli/commands/list.js';
import { sql } from '../../lib/cli/commands/sql.js';
import { UsageError } from '../../lib/cli/exit-code.js';
import { Terminal } from '../../lib/cli/terminal.js';
import { LockConfigError } from '../../lib/api/errors.js';
import { recordText } from '../../lib/core/job-record.js';
import type { LockBackend } from '../../lib/api/lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { contextFor } from '../backend-context.js';
import { startManager } from '../core/manager-rig.js';
import { detailsOf, rowOf } from '../../lib/cli/lock-text.js';
import { tableLines } from '../../lib/cli/table.js';

interface Given {
  readonly subject?: string;
  readonly namespace?: string;
  readonly json?: boolean;
  readonly yes?: boolean;
  readonly database?: string;
  readonly out?: string;
  readonly isTerminal?: boolean;
  /** What the operator types. */
  readonly answer?: string;
}

/** An application, and an operator's command that uses the same store. */
async function shopAndPrompt(parts: Partial<LockBackend> = {}) {
  const store = new MemoryStore();
  const { locks, clock } = await startManager({ provider: new MemoryLockProvider({ store }), instance: 'shop-1' });
  const backend = Object.assign(new MemoryLockProvider({ store }).createBackend(contextFor([], { clock })), parts);
  const run = async (command: Command, given: Given = {}) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
    const isTTY = given.isTerminal ?? false;
    const [input, output, errors] = [stdin, stdout, stderr].map((stream) => Object.assign(stream, { isTTY }));
    const terminal = new Terminal(
      ...([input, output, errors, { TERM: 'xterm' }] as unknown as [
        ReadStream,
        WriteStream,
        WriteStream,
        NodeJS.ProcessEnv,
      ]),
    );
    const { namespace, subject, json, yes, database, out: file, answer } = given;
    const args = { namespace, subject, json, yes, database, out: file };
    const open = () => Promise.resolve({ name: 'lock', provider: 'MemoryLockProvider', backend });
    if (answer !== undefined) stdin.write(answer);
    const texts = [stdout, stderr].map((stream) => {
      const text: string[] = [];
      stream.on('data', (part) => text.push(String(part)));
      return text;
    });
    const code = await command.run({ args, terminal, open });
    const [out = '', err = ''] = texts.map((text) => text.join(''));
    return { code, out, err };
  };
  return { locks, clock, backend, run };
}

it('list: prints a sorted table filtered by prefix, an array for --json, and a message if there are no locks', async () => {
  const { locks, run } = await shopAndPrompt();
  const hint = 'If the application uses another namespace, set --namespace.';
  expect(await run(list)).toEqual({ code: 0, out: '', err: `No locks are held in the namespace "lock". ${hint}\n` });
  expect(await run(list, { namespace: 'lock' })).toMatchObject({ err: 'No locks are held in the namespace "lock".\n' });
  expect(await run(list, { json: true })).toEqual({ code: 0, out: '[]\n', err: '' });
  for (const key of ['order:2', 'order:1', 'invoice']) await locks.acquire(key);
  const { out } = await run(list);
  expect(out.split('\n').map((line) => line.split(/ {2,}/).slice(0, 3))).toEqual([
    ['KEY', 'STATE', 'HELD BY'],
    ...['invoice', 'order:1', 'order:2'].map((key) => [key, 'held', 'shop-1']),
    [''],
  ]);
  const json = JSON.parse((await run(list, { subject: 'order:', json: true })).out) as LockInfo[];
  expect(json.map(({ key, instances }) => [key, instances])).toEqual([
    ['order:2', ['shop-1']],
    ['order:1', ['shop-1']],
  ]);
});

it('sql: reports a file that it cannot write as a mistake in --out', async () => {
  const { run } = await shopAndPrompt();
  const out = join(import.meta.filename, 'migrations/locks.sql');
  const written = run(sql, { database: 'postgres', out });
  await expect(written).rejects.toBeInstanceOf(UsageError);
  await expect(written).rejects.toThrow(`Cannot write ${out}: ENOTDIR`);
});

it('list: suggests namespaces that hold locks if its own has none', async () => {
  const found: string[] = [];
  const { run } = await shopAndPrompt({ namespaces: () => Promise.resolve(found) });
  const none = 'No locks are held in the namespace "lock".';
  const hint = 'If the application uses another namespace, set --namespace.';
  expect(await run(list)).toMatchObject({ err: `${none} ${hint}\n` });
  found.push('shop');
  expect(await run(list)).toMatchObject({
    err: `${none} Locks are held in the namespace "shop". Choose one with --namespace.\n`,
  });
  expect(await run(list, { subject: 'order:' })).toMatchObject({ err: expect.not.stringContaining('shop') as string });
  found.push(...Array.from({ length: 11 }, (_, index) => `billing-${index + 10}`));
  expect(await run(list, { namespace: 'lock' })).toMatchObject({
    err: expect.stringMatching(/in the namespaces "billing-10", .*"billing-19" and 2 more\. Choose one/) as string,
  });
});

it('list: prints one header and each lock once for a long list', async () => {
  const { locks, run } = await shopAndPrompt();
  const keys = Array.from({ length: 2_500 }, (_, index) => `order:${index}`);
  for (const key of keys) await locks.acquire(key);
  const [header, ...lines] = (await run(list)).out.trimEnd().split('\n');
  expect(header).toMatch(/^KEY /);
  expect(lines.map((line) => line.split(' ')[0]).sort()).toEqual(keys.sort());
});

it('inspect: returns 0 for a locked key and 1 for a free key', async () => {
  const { locks, run } = await shopAndPrompt();
  await locks.acquire('order:1');
  const held = await run(inspect, { subject: 'order:1' });
  expect(held.code).toBe(0);
  expect(held.out).toMatch(/^held by +shop-1$/m);
  expect(await run(inspect, { subject: 'a', namespace: 'lock' })).toMatchObject({
    code: 1,
    out: '"a" is free in the namespace "lock".\n',
  });
  const free = '"a" is free in the namespace "lock". If the application uses another namespace, set --namespace.\n';
  expect(await run(inspect, { subject: 'a' })).toMatchObject({ code: 1, out: free });
  expect(await run(inspect, { subject: 'a', json: true })).toMatchObject({ code: 1, out: 'null\n' });
  await expect(run(inspect, { subject: '' })).rejects.toMatchObject({ code: 'LOCK_KEY' });
});

it('free: asks for confirmation, accepts only yes, and fails without a terminal', async () => {
  const { locks, run } = await shopAndPrompt();
  await locks.acquire('order:1');
  await expect(run(free, { subject: 'order:1' })).rejects.toThrow(UsageError);
  const no = await run(free, { subject: 'order:1', isTerminal: true, answer: 'n\n' });
  expect(no).toMatchObject({ code: 1, err: expect.stringContaining('Free "order:1"?') as unknown });
  expect(no.out).toMatch(/^held by +shop-1$[^]*^Nothing was freed\.$/m);
  expect(await locks.isLocked('order:1')).toBe(true);
  const yes = await run(free, { subject: 'order:1', isTerminal: true, answer: 'yes\n' });
  expect(yes.code).toBe(0);
  expect(await locks.isLocked('order:1')).toBe(false);
  await (await locks.acquire('job', { minHold: '1m' })).release();
  expect((await run(free, { subject: 'job', isTerminal: true, answer: '\n' })).err).toContain('could run again');
  const { code, out } = await run(free, { subject: 'job', yes: true, json: true });
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ key: 'job', freed: true, was: { state: 'retained', instances: [] } });
  expect((await run(free, { subject: 'job', yes: true })).code).toBe(1);
});

it('doctor: returns 1 if it finds a problem, even while connecting, and 0 otherwise', async () => {
  const { run } = await shopAndPrompt();
  expect(await run(doctor)).toEqual({
    ...{ code: 0, out: 'MemoryLockProvider found nothing that weakens its guarantee.\n', err: '' },
  });
  const warning = { severity: 'warning', message: 'No AOF.' } as const;
  const ill = await shopAndPrompt({ diagnose: () => Promise.resolve([warning]) });
  expect(await ill.run(doctor)).toMatchObject({ code: 1, out: 'warning: No AOF.\n' });
  const { out } = await ill.run(doctor, { json: true });
  expect(JSON.parse(out)).toEqual({ provider: 'MemoryLockProvider', namespace: 'lock', findings: [warning] });
  const refused = await shopAndPrompt({ connect: () => Promise.reject(new LockConfigError('Too old.')) });
  expect(await refused.run(doctor)).toMatchObject({ code: 1, out: 'error: Too old.\n' });
});

it('jobs: prints the last run of each job as a table or as JSON, and a message if there are none', async () => {
  const { locks, clock, backend, run } = await shopAndPrompt();
  expect(await run(jobs, { namespace: 'lock' })).toEqual({
    ...{ code: 0, out: '', err: 'There are no job records in the namespace "lock".\n' },
  });
  expect(await run(jobs, { json: true })).toEqual({ code: 0, out: '[]\n', err: '' });
  const due = new Date(clock.wallTime());
  const times = { tick: due.getTime(), startedAt: due.getTime(), endedAt: due.getTime() };
  const record = { ...times, run: 'r1', state: 'ended', instance: 'shop-1', attempt: 1, schedule: null } as const;
  await backend.records?.replace('nightly', null, recordText(record));
  const { out } = await run(jobs);
  const time = due.toISOString().replace('T', ' ').slice(0, 19) + 'Z';
  expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['JOB', 'STATE', 'DUE', 'STARTED', 'ENDED', 'INSTANCE', 'ATTEMPT', 'SCHEDULE'],
    ['nightly', 'ended', time, time, time, 'shop-1', '1', '-'],
    [''],
  ]);
  for await (const listed of locks.admin.jobs()) {
    const expected = { ...listed, provider: 'MemoryLockProvider' };
    expect(JSON.parse((await run(jobs, { json: true })).out)).toEqual(JSON.parse(JSON.stringify([expected])));
  }
  const without = await shopAndPrompt({ records: undefined } as unknown as Partial<LockBackend>);
  await expect(without.run(jobs)).rejects.toThrow('does not keep job records');
});

const NOW = Date.parse('2026-11-23T11:30:04.113Z');
const LOCK: LockInfo = {
  ...{ key: 'order:42', state: 'held', mode: 'exclusive', holders: 1, waiters: 3, expiresIn: 24_108 },
  ...{ fencingToken: 17n, instances: ['shop-1'], since: new Date(NOW - 600_000) },
};

it('columns are as wide as their widest cell, in characters, and later chunks keep the widths', () => {
  const widths: number[] = [];
  expect(
    tableLines(
      [
        ['KEY', 'STATE'],
        ['é🔒', 'held'],
        ['long:key', ''],
      ],
      widths,
    ),
  ).toEqual(['KEY       STATE', 'é🔒        held', 'long:key']);
  expect(tableLines([['a', 'held']], widths)).toEqual(['a         held']);
  expect(tableLines([['longer:key', 'b']], widths)).toEqual(['longer:key  b']);
});

it('formats a row and the details for each kind of lock', () => {
  expect(rowOf(LOCK)).toEqual(['order:42', 'held', 'shop-1', '2026-11-23 11:20:04Z', '24s', '3', '17']);
  expect(detailsOf(LOCK, NOW)).toEqual([
    ['key', 'order:42'],
    ['state', 'held'],
    ['held by', 'shop-1'],
    ['since', '2026-11-23 11:20:04Z (10m ago)'],
    ['ends', 'in 24s, unless it is renewed'],
    ['waiting', '3'],
    ['token', '17'],
  ]);
  const instances = ['a', 'b', 'c', 'd', 'e'];
  const unknown = { since: null, fencingToken: null, waiters: null, expiresIn: null };
  const shared: LockInfo = { ...LOCK, ...unknown, mode: 'shared', holders: 5, instances };
  expect(rowOf(shared)).toEqual(['order:42', 'shared by 5', 'a, b, c, and 2 more', '-', '-', '-', '-']);
  expect(detailsOf(shared, NOW)).toContainEqual(['ends', "with the holder's session"]);
  expect(rowOf({ ...LOCK, mode: 'limited', limit: 4, used: 3 })[1]).toBe('held, 3 of 4');
  const retained: LockInfo = { ...LOCK, state: 'retained', holders: 0, instances: [] };
  expect(rowOf(retained).slice(1, 3)).toEqual(['retained', '-']);
  expect(detailsOf(retained, NOW)).toContainEqual(['ends', 'in 24s']);
});

it('escapes control characters in keys and instances, and shows no age if the clock is behind', () => {
  const lock = { ...LOCK, key: 'a\u001b[2J\nb', instances: ['\u009bx'] };
  expect([...rowOf(lock), ...detailsOf(lock, NOW - 3_600_000).flat()].join('')).not.toMatch(/\p{Cc}|\bago\b/u);
  expect(rowOf(lock)[0]).toBe('a\\u001b[2J\\nb');
});
