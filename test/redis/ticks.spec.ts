import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { type ListedJob, LockManager, type SkipReason } from '../../lib/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { until } from './seam.js';

const PROGRAM = fileURLToPath(new URL('ticks-program.mjs', import.meta.url));
const DAY = 86_400_000;
const EVERY_SECOND = '* * * * * *';
const YEARLY = '0 0 1 1 *';

interface Run<E> {
  readonly event: E;
  readonly tick: number;
  readonly attempt: number;
}

type Report =
  | { readonly event: 'ready' }
  | Run<'begin'>
  | Run<'end'>
  | { readonly event: 'skipped'; readonly reason: SkipReason }
  | { readonly event: 'abandoned'; readonly again: boolean; readonly instance: string };

interface Settings {
  readonly expression: string;
  readonly options?: { readonly catchUp?: string; readonly afterCrash?: number };
  /** By how many ms its clock is ahead. */
  readonly ahead?: number;
}

class Member {
  readonly reports: Report[] = [];

  constructor(readonly process: ChildProcess) {
    process.on('message', (message) => this.reports.push(message as Report));
  }

  of<E extends Report['event']>(event: E): Extract<Report, { event: E }>[] {
    return this.reports.filter((report): report is Extract<Report, { event: E }> => report.event === event);
  }

  get begun(): Run<'begin'>[] {
    return this.of('begin');
  }

  order(what: 'call' | 'linger' | 'go on'): void {
    this.process.send({ order: what });
  }

  async stop(): Promise<void> {
    const gone = once(this.process, 'exit');
    this.process.kill('SIGTERM');
    expect(await gone).toEqual([0, null]);
  }
}

let server: RedisServer;
let library: CompiledLibrary;
let admin: LockManager;
const members: Member[] = [];

beforeAll(async () => {
  library = await compileLibrary();
}, 120_000);
beforeEach(async () => {
  server = await startRedisServer();
  admin = new LockManager({ providers: { redis: new RedisLockProvider({ url: server.url }) } });
  await admin.start();
}, 60_000);
afterEach(async () => {
  for (const { process } of members.splice(0)) process.kill('SIGKILL');
  await admin.stop();
  await server.stop();
});
afterAll(() => library.remove());

async function join(settings: Settings): Promise<Member> {
  const member = new Member(fork(PROGRAM, [library.folder, server.url, JSON.stringify(settings)], { execArgv: [] }));
  members.push(member);
  await until(() => member.of('ready').length === 1, 'a process of the fleet is up', 60_000);
  return member;
}

async function record(): Promise<ListedJob | undefined> {
  for await (const job of admin.admin.jobs()) return job;
  return undefined;
}

const ticksOf = (...all: Member[]) => all.flatMap(({ begun }) => begun.map(({ tick }) => tick));

it('in four processes whose clocks differ by a third of the period, and one by a day, each tick runs once', async () => {
  const fleet = await Promise.all(
    [0, 333, -333, DAY].map((ahead) => join({ expression: EVERY_SECOND, options: { catchUp: '1h' }, ahead })),
  );
  await until(() => ticksOf(...fleet).length >= 8, 'eight ticks have begun', 60_000);
  // The process whose clock is slightly ahead may begin all of them.
  await until(() => fleet.filter((each) => each.of('skipped').length > 0).length >= 3, 'the others skip', 60_000);
  const ticks = ticksOf(...fleet);
  expect(new Set(ticks).size).toBe(ticks.length);
  for (const tick of ticks) expect(tick % 1_000).toBe(0);
  const [, , , ahead] = fleet;
  expect(ahead?.begun).toEqual([]);
  expect(new Set(ahead?.of('skipped').map(({ reason }) => reason))).toEqual(new Set(['clock']));
}, 180_000);

it('a process that shuts down during a run finishes it, and its replacement does not repeat the tick', async () => {
  const settings = { expression: YEARLY, options: { afterCrash: 1 } };
  const one = await join(settings);
  one.order('linger');
  one.order('call');
  await until(() => one.begun.length === 1, 'the run has begun', 60_000);
  const stopped = one.stop();
  const other = await join(settings);
  other.order('call');
  await until(() => other.of('skipped').length === 1, 'the replacement skips the tick', 60_000);
  one.order('go on');
  await stopped;
  other.order('call');
  await until(() => other.of('skipped').length === 2, 'the replacement still skips the tick', 60_000);
  expect(one.of('end')).toHaveLength(1);
  expect(other.begun).toEqual([]);
  expect(other.of('skipped').map(({ reason }) => reason)).toEqual(['done', 'done']);
  expect(await record()).toMatchObject({ state: 'ended', attempt: 1 });
}, 180_000);

it('a deployment that changes the schedule does not repeat what ran under the old schedule', async () => {
  const old = await join({ expression: EVERY_SECOND, options: { catchUp: '24d' } });
  await until(() => old.begun.length >= 2, 'the job has run', 60_000);
  await old.stop();
  const next = await join({ expression: YEARLY, options: { catchUp: '24d', afterCrash: 1 } });
  let seen: ListedJob | undefined;
  for (;;) {
    seen = await record();
    if (seen?.state === 'baseline') break;
  }
  // The old schedule ran this tick once.
  expect(seen).toMatchObject({ schedule: `${YEARLY} (UTC)`, attempt: 1, instance: String(next.process.pid) });
  expect(Math.max(...ticksOf(old))).toBe(seen.tick.getTime());
  next.order('call');
  await until(() => next.of('skipped').length === 1, 'a call has no tick to run', 60_000);
  expect(next.begun).toEqual([]);
}, 180_000);

it("after a run's process is killed, another process begins the run once more", async () => {
  const fleet = await Promise.all([1, 2, 3, 4].map(() => join({ expression: YEARLY, options: { afterCrash: 1 } })));
  const [first, ...others] = fleet as [Member, ...Member[]];
  first.order('linger');
  first.order('call');
  await until(() => first.begun.length === 1, 'the run has begun', 60_000);
  for (const other of others) other.order('call');
  await until(() => others.every((other) => other.of('skipped').length === 1), 'the others skip', 60_000);
  first.process.kill('SIGKILL');
  await until(() => others.some((other) => other.of('end').length === 1), 'one of them runs the tick', 60_000);
  const again = others.flatMap((other) => other.of('abandoned'));
  expect(again).toEqual([{ event: 'abandoned', again: true, instance: String(first.process.pid) }]);
  for (const other of others) other.order('call');
  await until(() => others.every((other) => other.of('skipped').length === 2), 'none runs it a third time', 60_000);
  expect(others.flatMap(({ begun }) => begun)).toEqual([{ ...first.begun[0], attempt: 2 }]);
  expect(await record()).toMatchObject({ state: 'ended', attempt: 2 });
}, 180_000);
