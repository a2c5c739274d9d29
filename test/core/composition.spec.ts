import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import type {
  AcquireRequest,
  BackendContext,
  BackendEvent,
  LockBackend,
  LockProvider,
  MemberLockRequest,
} from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { until } from '../until.js';
import { startManager } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

/** A composite that delegates all calls to its first member. */
class Alias extends ScriptedProvider {
  readonly heard: BackendEvent[] = [];
  readonly members: readonly string[];

  constructor(...members: string[]) {
    super();
    this.members = members;
  }

  override createBackend(context: BackendContext): this {
    const members = this.members.map((name) => context.member(name));
    for (const member of members) member.observe((event) => this.heard.push(event));
    const [first] = members;
    if (first) {
      const atFirst = (request: AcquireRequest) => (request.state ??= first.request(request)) as MemberLockRequest;
      this.onAcquire = (request) => atFirst(request).acquire();
      this.onRelease = (request, options) => atFirst(request).release(options);
    }
    return super.createBackend(context);
  }
}

const unreachable = () => Promise.reject(new LockUnavailableError('down', { provider: 'member' }));

/** Records when each provider starts and stops. */
function diary(providers: Readonly<Record<string, ScriptedProvider>>): string[] {
  const lines: string[] = [];
  for (const [name, provider] of Object.entries(providers)) {
    provider.onConnect = async () => {
      lines.push(`${name} starts`);
      await Promise.resolve();
      lines.push(`${name} started`);
    };
    provider.close = async () => {
      lines.push(`${name} stops`);
      await Promise.resolve();
      lines.push(`${name} stopped`);
    };
  }
  return lines;
}

describe('a composite provider', () => {
  it('starts after its members and stops before them', async () => {
    const providers = {
      all: new Alias('half', 'b'),
      half: new Alias('a'),
      a: new ScriptedProvider(),
      b: new ScriptedProvider(),
    };
    const lines = diary(providers);
    const { locks } = await startManager({ providers, default: 'all' });
    await locks.stop();
    const order = (...said: string[]) => expect(lines.filter((line) => said.includes(line))).toEqual(said);
    order('a started', 'half starts', 'half started', 'all starts');
    order('b started', 'all starts');
    order('all stopped', 'half stops', 'half stopped', 'a stops');
    order('all stopped', 'b stops');
  });

  it('locks through its members, which remain usable by their own names', async () => {
    const member = ScriptedProvider.obliging();
    const { locks } = await startManager({ providers: { all: new Alias('member'), member }, default: 'all' });
    const lock = await locks.acquire('order:1');
    expect(lock.provider).toBe('all');
    await lock.release();
    await (await locks.acquire('order:2', { provider: 'member' })).release();
    expect(member.order).toEqual(['acquire order:1', 'release order:1', 'acquire order:2', 'release order:2']);
    await locks.stop();
  });

  it("sends requests to a member separately from the member's direct callers, each with the age of its oldest caller", async () => {
    const member = new ScriptedProvider();
    member.onRelease = () => 'released';
    const { locks, clock } = await startManager({ providers: { all: new Alias('member'), member }, default: 'all' });
    const first = locks.acquire('order:1');
    await clock.advance(10);
    const second = locks.acquire('order:1', { provider: 'member' });
    // Each of the two queues has one request, even when further callers arrive.
    const [third, fourth] = [locks.acquire('order:1'), locks.acquire('order:1', { provider: 'member' })];
    expect(member.asks.map(({ input }) => input.since)).toEqual([clock.now() - 10, clock.now()]);
    member.asks[0]?.grant();
    await (await first).release();
    expect(member.order).toEqual(['acquire order:1', 'acquire order:1', 'acquire order:1', 'release order:1']);
    member.asks[1]?.grant();
    await (await second).release();
    member.asks[2]?.grant();
    await (await third).release();
    member.asks[3]?.grant();
    await (await fourth).release();
    await locks.stop();
  });

  it('receives the events of its members', async () => {
    const member = new ScriptedProvider();
    const all = new Alias('member');
    const { locks } = await startManager({ providers: { all, member }, default: 'all' });
    const event: BackendEvent = { type: 'unavailable', cause: new Error('gone') };
    member.context.emit(event);
    expect(all.heard).toEqual([event]);
    await locks.stop();
  });

  it('starts even if a member is unreachable, because only the composite can judge what that means', async () => {
    const member = new ScriptedProvider();
    member.onConnect = unreachable;
    const { locks, names } = await startManager({ providers: { all: new Alias('member'), member }, default: 'all' });
    expect(names()).toEqual(['unavailable']);
    await locks.stop();
  });

  it('fails the boot if it is unreachable itself, and stops all providers', async () => {
    const providers = { all: new Alias('member'), member: new ScriptedProvider() };
    providers.all.onConnect = unreachable;
    await expect(startManager({ providers, default: 'all' })).rejects.toThrow(LockUnavailableError);
    expect([providers.all.closes, providers.member.closes]).toEqual([1, 1]);
  });

  it('is rejected without its members', () => {
    const providers = { all: new Alias('redis', 'mysql'), redis: new ScriptedProvider() };
    expect(() => new LockManager({ providers, default: 'all' })).toThrow(LockConfigError);
    expect(() => new LockManager({ providers, default: 'all' })).toThrow(
      'Lock provider "all" depends on "mysql", but the only lock providers are "all", "redis".',
    );
  });

  it('is rejected in a cycle', () => {
    const providers = { all: new Alias('half'), half: new Alias('all') };
    expect(() => new LockManager({ providers, default: 'all' })).toThrow(
      'Lock providers depend on each other in a cycle: all → half → all.',
    );
  });
});

/** The memory provider with parts of its backend replaced. */
function providerWith(change: (backend: LockBackend) => Partial<LockBackend>): LockProvider {
  return {
    createBackend(context: BackendContext) {
      const backend: LockBackend = new MemoryLockProvider().createBackend(context);
      return Object.assign(backend, change(backend));
    },
  };
}

function managerOf(providers: Record<string, LockProvider>, failFast = true) {
  const log: string[] = [];
  const say = (line: string) => void log.push(line);
  const logger = { debug: () => undefined, warn: say, error: say };
  return { log, locks: new LockManager({ providers, default: Object.keys(providers)[0], failFast, logger }) };
}

it('diagnostics of a server run before the first write, which may close the connection', async () => {
  const asked: string[] = [];
  const provider = providerWith(() => ({
    register: () => Promise.resolve(void asked.push('register')),
    diagnose: () => Promise.resolve([]).finally(() => asked.push('diagnose')),
  }));
  const { locks } = managerOf({ provider });
  await locks.start();
  await until(() => asked.length === 2, 'both were called');
  expect(asked).toEqual(['diagnose', 'register']);
  await locks.stop();
});

it('a refusal fails the start even without failFast, unless another provider depends on the refused one', async () => {
  const refused = new LockConfigError('The server refuses the login.', { refused: true });
  const provider = providerWith(() => ({ connect: () => Promise.reject(refused) }));
  await expect(managerOf({ provider }, false).locks.start()).rejects.toBe(refused);
  const both = new CombinedLockProvider({ providers: ['provider', 'memory'] });
  const { locks, log } = managerOf({ both, provider, memory: new MemoryLockProvider() }, false);
  await locks.start();
  expect(log).toContainEqual('Lock provider "provider" is not responding: The server refuses the login.');
  await locks.stop();
  const mistake = new LockConfigError('A mistake in the options.');
  const wrong = providerWith(() => ({ connect: () => Promise.reject(mistake) }));
  await expect(
    managerOf({ both, provider: wrong, memory: new MemoryLockProvider() }, false).locks.start(),
  ).rejects.toBe(mistake);
  const down = providerWith(() => ({ connect: () => Promise.reject(new LockUnavailableError('Down.')) }));
  await expect(managerOf({ provider: down }).locks.start()).rejects.toThrow('Down.');
});
