import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { until } from './seam.js';

const PROGRAM = fileURLToPath(new URL('schedule-program.mjs', import.meta.url));

/** A report of one run. Its fencing token is the time of its grant by the server's clock, in µs. */
interface Report {
  readonly event: 'ready' | 'begin' | 'end' | 'skipped';
  readonly token: string;
  readonly held: boolean;
}

interface Run {
  readonly by: Member;
  readonly token: bigint;
}

interface Member {
  readonly process: ChildProcess;
  skipped: number;
}

describe('a job with minHold of one second in four processes, two with @RunOnce and two with runOnce(), each of which fires it every 50 ms', () => {
  let server: RedisServer;
  let library: CompiledLibrary;
  const members = new Set<Member>();
  const runs: Run[] = [];
  const ended: Report[] = [];

  beforeAll(async () => {
    server = await startRedisServer();
    library = await compileLibrary();
    await Promise.all([join(), join(), join('runOnce'), join('runOnce')]);
  }, 120_000);
  afterAll(async () => {
    for (const { process } of members) process.kill('SIGKILL');
    await library.remove();
    await server.stop();
  });

  async function join(asks: 'decorator' | 'runOnce' = 'decorator'): Promise<void> {
    const child = fork(PROGRAM, [library.folder, server.url, asks], { execArgv: [] });
    const member: Member = { process: child, skipped: 0 };
    members.add(member);
    let ready = false;
    child.on('message', (message) => {
      const report = message as Report;
      if (report.event === 'ready') ready = true;
      else if (report.event === 'skipped') member.skipped += 1;
      else if (report.event === 'begin') runs.push({ by: member, token: BigInt(report.token) });
      else ended.push(report);
    });
    await until(() => ready, 'a process of the fleet is up', 60_000);
  }

  const order = (what: 'linger' | 'go on') => {
    for (const { process } of members) process.send({ order: what });
  };

  /** Waits for the next run that begins after now. */
  async function nextRun(): Promise<Run> {
    const count = runs.length;
    await until(() => runs.length > count, 'the job runs', 60_000);
    return runs[count] as Run;
  }

  /** Waits until every member but `runner` has fired the job and skipped it several times. */
  async function everybodySkips(runner: Member): Promise<void> {
    const others = [...members].filter((member) => member !== runner);
    const before = new Map(others.map((member) => [member, member.skipped]));
    await until(
      () => others.every((member) => member.skipped >= (before.get(member) ?? 0) + 10),
      'all others skip',
      60_000,
    );
  }

  /**
   * Returns the µs of the server's clock between the grants of consecutive runs. Messages of two processes may arrive
   * out of order, so it sorts.
   */
  const gaps = () => {
    const tokens = runs.map(({ token }) => token).sort((a, b) => (a < b ? -1 : 1));
    return tokens.slice(1).map((token, index) => Number(token - (tokens[index] ?? 0n)));
  };

  // Redis counts expiry in whole milliseconds.
  const A_SECOND = 998_000;

  it('runs once a second', async () => {
    await until(() => runs.length >= 4, 'the job has run four times', 60_000);
    expect(Math.min(...gaps())).toBeGreaterThanOrEqual(A_SECOND);
  }, 90_000);

  it('is not run by another process while a run outlasts minHold and the lease', async () => {
    order('linger');
    const long = await nextRun();
    const count = runs.length;
    const begun = performance.now();
    // The lease is six seconds, so by then it has been renewed.
    while (performance.now() - begun < 6_500) await everybodySkips(long.by);
    expect(runs).toHaveLength(count);
    order('go on');
    await until(() => ended.some(({ token }) => BigInt(token) === long.token), 'the long run ends');
    expect(ended.find(({ token }) => BigInt(token) === long.token)?.held).toBe(true);
    await nextRun();
  }, 240_000);

  it('is taken over after its runner crashes, but not before minHold is over', async () => {
    order('linger');
    const crashed = await nextRun();
    members.delete(crashed.by);
    crashed.by.process.kill('SIGKILL');
    order('go on');
    const next = await nextRun();
    expect(Number(next.token - crashed.token)).toBeGreaterThanOrEqual(A_SECOND);
    expect(ended.some(({ token }) => BigInt(token) === crashed.token)).toBe(false);
  }, 180_000);

  it('is finished by a process that shuts down, and not repeated by its replacement', async () => {
    order('linger');
    const last = await nextRun();
    members.delete(last.by);
    const gone = once(last.by.process, 'exit');
    last.by.process.kill('SIGTERM');
    await join();
    await everybodySkips(last.by);
    last.by.process.send({ order: 'go on' });
    expect(await gone).toEqual([0, null]);
    expect(ended.find(({ token }) => BigInt(token) === last.token)?.held).toBe(true);
    order('go on');
    await nextRun();
    expect(Math.min(...gaps())).toBeGreaterThanOrEqual(A_SECOND);
  }, 240_000);
});
