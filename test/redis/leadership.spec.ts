import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { until } from './seam.js';

const PROGRAM = fileURLToPath(new URL('leader-program.mjs', import.meta.url));
const LEASE = 3_000;

interface Report {
  readonly event: 'ready' | 'elected' | 'written' | 'aborted' | 'late write' | 'resigned' | 'report' | 'skipped';
  readonly token?: string;
  readonly reason?: string;
  readonly outcome?: string;
}

interface Member {
  readonly process: ChildProcess;
  readonly reports: Report[];
}

interface Leader {
  readonly member: Member;
  readonly token: bigint;
}

describe('a leader among three processes', () => {
  let server: RedisServer;
  let library: CompiledLibrary;
  let admin: Redis;
  const members = new Set<Member>();

  beforeAll(async () => {
    server = await startRedisServer();
    admin = new Redis(server.url);
    library = await compileLibrary();
    await Promise.all([join(), join(), join()]);
  }, 120_000);
  afterAll(async () => {
    for (const { process } of members) process.kill('SIGKILL');
    admin.disconnect();
    await library.remove();
    await server.stop();
  });

  async function join(): Promise<Member> {
    const child = fork(PROGRAM, [library.folder, server.url, String(LEASE)], { execArgv: [] });
    const member: Member = { process: child, reports: [] };
    members.add(member);
    child.on('message', (report) => member.reports.push(report as Report));
    await told(member, 'ready');
    return member;
  }

  /** Returns a member's reports of that name, latest first. */
  const all = ({ reports }: Member, event: Report['event']) => reports.filter((each) => each.event === event).reverse();

  /** Waits for the member's report of that name after the first `count`. */
  async function told(member: Member, event: Report['event'], count = 0): Promise<Report> {
    await until(() => all(member, event).length > count, `a member reports "${event}"`, 60_000);
    return all(member, event)[0]!;
  }

  /** Waits for the leader that has written with a token above `token`. */
  async function leaderAfter(token: bigint): Promise<Leader> {
    const leaders = () =>
      [...members].flatMap((member) =>
        all(member, 'written').map(({ token: own = '' }) => ({ member, token: BigInt(own) })),
      );
    await until(() => leaders().some((leader) => leader.token > token), 'another leader has written', 60_000);
    return leaders().find((leader) => leader.token > token)!;
  }

  /** Expects that no write was accepted after one with a larger token, whether leaders resigned or died. */
  async function expectWritesInOrder(): Promise<void> {
    const tokens = (await admin.lrange('resource:writes', 0, -1)).map(BigInt);
    expect(tokens.length).toBeGreaterThan(0);
    expect(tokens.every((token, index) => index === 0 || token >= tokens[index - 1]!)).toBe(true);
  }

  it('runs @OnlyLeader methods, which the other processes skip', async () => {
    const { member, token } = await leaderAfter(0n);
    await told(member, 'report');
    expect(all(member, 'report')[0]?.token).toBe(String(token));
    for (const other of members) {
      if (other === member) continue;
      await told(other, 'skipped', 5);
      expect([all(other, 'report').length, all(other, 'elected').length]).toEqual([0, 0]);
    }
  }, 120_000);

  it('is replaced while it is frozen, notices the loss before it writes again, and has its stale write refused', async () => {
    const frozen = await leaderAfter(0n);
    frozen.member.process.kill('SIGSTOP');
    const next = await leaderAfter(frozen.token);
    expect(next.member).not.toBe(frozen.member);
    // A token is the time of the grant by the server's clock, in µs: no process led during the lease of the frozen one.
    expect(Number(next.token - frozen.token)).toBeGreaterThanOrEqual((LEASE - 2) * 1_000);
    frozen.member.process.kill('SIGCONT');
    expect(await told(frozen.member, 'aborted')).toMatchObject({ token: String(frozen.token) });
    expect(await told(frozen.member, 'late write')).toMatchObject({ outcome: 'refused' });
    expect(await told(frozen.member, 'resigned')).toMatchObject({ reason: 'lost' });
    await expectWritesInOrder();
  }, 120_000);

  it('is replaced after its lease if it is killed', async () => {
    const killed = await leaderAfter(BigInt((await admin.get('resource:token')) ?? 0) - 1n);
    members.delete(killed.member);
    killed.member.process.kill('SIGKILL');
    const next = await leaderAfter(killed.token);
    expect(Number(next.token - killed.token)).toBeGreaterThanOrEqual((LEASE - 2) * 1_000);
    await expectWritesInOrder();
  }, 120_000);

  it('resigns on SIGTERM, and its process exits', async () => {
    const last = await leaderAfter(BigInt((await admin.get('resource:token')) ?? 0) - 1n);
    members.delete(last.member);
    const gone = once(last.member.process, 'exit');
    last.member.process.kill('SIGTERM');
    expect(await gone).toEqual([0, null]);
    expect(all(last.member, 'resigned')[0]).toMatchObject({ reason: 'shutdown' });
    // The leader's last write came before its release.
    expect(all(last.member, 'late write')[0]).toMatchObject({ outcome: 'accepted' });
    await leaderAfter(last.token);
    await expectWritesInOrder();
  }, 120_000);
});
