import { jest } from '@jest/globals';
import fc from 'fast-check';
import { Redis } from 'ioredis';
import { HolderTable } from '../../lib/providers/redis/holder-table.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import type { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { RedisRequest } from '../../lib/providers/redis/redis-request.js';
import { RedisRequests } from '../../lib/providers/redis/redis-requests.js';
import { FakeClock } from '../../lib/testing/index.js';
import { exploration } from '../exploration.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { makeServerClock, NO_COMPILER } from '../servers/server-clock.js';
import { InterleavedNetwork, type NetworkAct } from './interleaved-network.js';
import { backendOf, RELEASE, request, type TestRequest } from './seam.js';
import type { DirectBackend, TestGrant } from '../direct-backend.js';
import { describeUnless } from '../unless.js';

/**
 * Two processes and up to five requests on one key, the real client code and the real script, with every step of the network and of time
 * decided by the test: fast-check searches for an order that breaks a promise, and prints the shortest it finds. What the core does with a
 * request is done here: it asks again after a failure, releases a request that it gives up, and repeats a release without an answer.
 *
 * Of faults put in on purpose it found each: those of the guilty controls below, a token repeated, a member left in the queue, a lease
 * counted from a repeated ask, validity of a message counted from its receipt, readers among writers.
 *
 * Time stands still between steps: the wall clock of Redis is replaced (see server-clock.ts), and that of the processes is a FakeClock.
 */
const RUNS = exploration(150, 5_000);
const KEY = 'k';
const LAYOUT = new KeyLayout('lock');
const LOCK = LAYOUT.lockOf(KEY);
const LEASE = 6_000;
const CLAIM_SECONDS = 3;
const EPOCH = 1_800_000_000_000;
const clock = makeServerClock();

type Step =
  | {
      readonly do: 'ask';
      readonly by: number;
      readonly mode: 'exclusive' | 'shared';
      readonly wait: number;
      readonly callers: number;
    }
  | {
      readonly do: NetworkAct | 'crash';
      readonly by: number;
    }
  | { readonly do: 'release' | 'renew' | 'abort' | 'again'; readonly which: number }
  | { readonly do: 'callers'; readonly which: number; readonly callers: number }
  /** The tokens run ahead of the clock, as after a step of it: then they follow one another without a gap. */
  | { readonly do: 'run ahead' }
  | { readonly do: 'wait'; readonly ms: number };

const by = fc.nat({ max: 1 });
const which = fc.nat({ max: 4 });
// Shared much more often than not would hide what writers do; so would faults in each second step.
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('ask'),
      by,
      mode: fc.constantFrom('exclusive', 'exclusive', 'shared'),
      wait: fc.constantFrom(60_000, 60_000, 60_000, 0),
      callers: fc.constantFrom(1, 1, 2, 64),
    }),
  },
  { weight: 16, arbitrary: fc.record({ do: fc.constant('execute'), by }) },
  { weight: 12, arbitrary: fc.record({ do: fc.constant('answer'), by }) },
  { weight: 8, arbitrary: fc.record({ do: fc.constant('hear'), by }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('wait'), ms: fc.constantFrom(200, 1_000, 1_000, 3_100) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('release'), which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('renew'), which }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('abort', 'again'), which }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('late', 'cut', 'deafen', 'lose', 'listen'), by }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('crash'), by }) },
);

interface Attempt {
  readonly ask: TestRequest & { callers: number };
  readonly by: number;
  state: 'waiting' | 'unknown' | 'held' | 'over';
  grant: TestGrant | undefined;
  validUntil: number;
}

const settle = () => new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));

/** Sets the clock of the server. Valkey 9.1 reads it once a millisecond, so it may still tell the time before. */
async function setTime(admin: Redis, milliseconds: number): Promise<void> {
  clock?.freeze(milliseconds);
  for (;;) {
    const [seconds, micros] = await admin.time();
    if (Number(seconds) * 1_000 + Number(micros) / 1_000 === milliseconds) return;
  }
}

/** Two processes on one key, and what may never happen. */
class World {
  readonly time = new FakeClock();
  readonly attempts: Attempt[] = [];
  readonly backends: DirectBackend<RedisBackend>[] = [];
  readonly crashed = [false, false];
  /** How many grants were for several callers. */
  cohorts = 0;
  #largestToken = 0n;
  #largestMode = 'exclusive';
  #idleSeconds = 0;
  /** What was wrong with an answer. */
  #wrong: Error | undefined;

  private constructor(
    readonly networks: readonly InterleavedNetwork[],
    readonly admin: Redis,
  ) {}

  static async create(admin: Redis, listeners: readonly Redis[]): Promise<World> {
    await setTime(admin, EPOCH);
    await admin.flushall();
    const world = new World(
      listeners.map((listener) => new InterleavedNetwork(admin, listener)),
      admin,
    );
    for (const network of world.networks) {
      const backend = backendOf({ client: network.client, commandTimeout: '1h' }, { clock: world.time });
      world.backends.push(backend);
      await network.carry(backend.connect());
    }
    return world;
  }

  async run(step: Step): Promise<void> {
    if ('by' in step && this.crashed[step.by]) return;
    switch (step.do) {
      case 'ask':
        if (this.attempts.length < 5) this.#ask(step);
        break;
      case 'execute':
      case 'late':
      case 'answer':
      case 'hear':
      case 'cut':
      case 'deafen':
      case 'lose':
      case 'listen':
        await this.networks[step.by]?.perform(step.do);
        break;
      case 'crash':
        await this.#crash(step.by);
        break;
      case 'wait':
        await this.pass(step.ms);
        break;
      case 'run ahead':
        await this.admin.set(LAYOUT.counter, 1_000 * (EPOCH + 3_600_000));
        break;
      case 'callers':
        Object.assign(this.attempts[step.which]?.ask ?? {}, { callers: step.callers });
        break;
      default:
        this.#act(step.do, this.attempts[step.which]);
    }
    await settle();
    await Promise.all(this.networks.map((network) => network.collect()));
    this.check();
  }

  /** Time passes, the same for all. */
  async pass(ms: number): Promise<void> {
    await setTime(this.admin, EPOCH + this.time.now() + ms);
    await this.time.advance(ms);
  }

  /** Whom the promise binds: whoever may believe to hold the key at this moment. */
  believers(): Attempt[] {
    return this.attempts.filter(
      ({ by, state, validUntil }) => state === 'held' && !this.crashed[by] && validUntil > this.time.now(),
    );
  }

  check(): void {
    if (this.#wrong) throw this.#wrong;
    const holders = this.believers();
    if (holders.length > 1 && holders.some(({ ask }) => ask.mode === 'exclusive')) {
      throw new Error(`Two hold the key: ${holders.map(({ by, ask }) => `${ask.mode} in process ${by}`).join(', ')}.`);
    }
  }

  /** The network heals, tasks end, and all that still wait must get their turn; then nothing may be left. */
  async conclude(): Promise<void> {
    for (let second = 0; second < 60; second += 1) {
      for (const [index, network] of this.networks.entries()) {
        if (this.crashed[index]) continue;
        if (second === 0) network.listen();
        await this.#drain(network);
      }
      for (const attempt of this.attempts) {
        if (attempt.state === 'held') this.#act('release', attempt);
        if (attempt.state === 'unknown') this.#send(attempt);
      }
      for (const [index, network] of this.networks.entries()) if (!this.crashed[index]) await this.#drain(network);
      this.check();
      // By then what was lost with a connection has been sent again.
      if (second >= 2) await this.#checkRecords();
      await this.pass(1_000);
      if (second > 20 && this.attempts.every(({ state, by }) => state === 'over' || this.crashed[by])) break;
    }
    const stuck = this.attempts.filter(({ state, by }) => state !== 'over' && !this.crashed[by]);
    if (stuck.length > 0)
      throw new Error(`${stuck.length} attempts were never served: ${stuck.map(({ state }) => state).join(', ')}.`);
    const left = (await this.admin.keys('*')).filter((key) => !/^lock:\{\d+\}$/.test(key));
    if (left.length > 0) throw new Error(`Left behind: ${left.join(', ')}.`);
  }

  async close(): Promise<void> {
    await Promise.all(this.networks.map((network) => network.deafen()));
    void Promise.all(this.backends.map((backend) => backend.close()));
    for (const network of this.networks) network.cut();
    await settle();
  }

  /** What the server knows once the network has healed: nobody whose attempt is over, and nobody who waits for nothing. */
  async #checkRecords(): Promise<void> {
    const [value, queue, readers] = await Promise.all([
      this.admin.get(LOCK),
      this.admin.zrange(`${LOCK}}q`, '0', '-1'),
      this.admin.zrange(`${LOCK}}r`, '0', '-1'),
    ]);
    const living = this.attempts.filter(({ by }) => !this.crashed[by]);
    for (const { ask } of living.filter(({ state }) => state === 'over')) {
      if (value?.endsWith(ask.id)) throw new Error('A request that is over holds the lock.');
      if (queue.some((member) => member.endsWith(ask.id))) throw new Error('A request that is over is queued.');
      if (readers.some((reader) => reader.endsWith(ask.id))) throw new Error('A request that is over reads.');
    }
    // Who crashed keeps its lease. But while the lock is free or no more than claimed, those that wait come in.
    const isIdle = living.every(({ state }) => state !== 'held') && (value === null || value.startsWith('c'));
    this.#idleSeconds = isIdle && living.some(({ state }) => state === 'waiting') ? this.#idleSeconds + 1 : 0;
    if (this.#idleSeconds > CLAIM_SECONDS + 1) throw new Error(`Nobody was served for ${this.#idleSeconds} s.`);
  }

  async #drain(network: InterleavedNetwork): Promise<void> {
    await settle();
    while (network.requests.length + network.replies.length + network.messages.length > 0) {
      await network.execute();
      network.answer();
      network.hear();
      await settle();
      await network.collect();
      this.check();
    }
  }

  #ask({ by, mode, wait, callers }: Extract<Step, { do: 'ask' }>): void {
    const { time } = this;
    const since = time.now();
    const ask = Object.defineProperty(request(KEY, { mode, wait, callers, lease: LEASE }), 'age', {
      get: () => time.now() - since,
    });
    const attempt: Attempt = {
      ask,
      by,
      state: 'waiting',
      grant: undefined,
      validUntil: 0,
    };
    this.attempts.push(attempt);
    this.#send(attempt);
  }

  #send(attempt: Attempt): void {
    attempt.state = 'waiting';
    this.backends[attempt.by]?.acquire(attempt.ask).then(
      (answer) => {
        if (attempt.state !== 'waiting') return;
        if (answer === 'busy') attempt.state = 'over';
        else {
          this.#wrong ??= this.#whyNot(answer);
          Object.assign(attempt, { state: 'held', grant: answer, validUntil: answer.validUntil });
        }
      },
      () => {
        if (attempt.state === 'waiting') attempt.state = 'unknown';
      },
    );
  }

  /** What is wrong with a grant. Each of its callers may use the next token. */
  #whyNot({ mode, fencingToken, followers = 0, validUntil }: TestGrant): Error | undefined {
    const token = fencingToken ?? 0n;
    const largest = this.#largestToken;
    const together = token === largest && mode === 'shared' && this.#largestMode === 'shared';
    this.#largestToken = token + BigInt(followers);
    this.#largestMode = mode;
    if (followers > 0) this.cohorts += 1;
    if (validUntil <= this.time.now()) return new Error('Granted when it was over.');
    if (followers > 63 || (followers > 0 && mode === 'shared')) return new Error(`It has ${followers} followers.`);
    return token > largest || together ? undefined : new Error(`Token ${token} after ${largest}.`);
  }

  // As the core does it.
  #act(action: 'release' | 'renew' | 'abort' | 'again', attempt: Attempt | undefined): void {
    if (!attempt || this.crashed[attempt.by]) return;
    const backend = this.backends[attempt.by] as DirectBackend<RedisBackend>;
    const { grant } = attempt;
    if (action === 'again' && attempt.state === 'unknown') this.#send(attempt);
    else if (action === 'abort' && (attempt.state === 'waiting' || attempt.state === 'unknown')) {
      attempt.ask.abort();
      this.#insist(backend, attempt);
    } else if (action === 'release' && grant && attempt.state === 'held') this.#insist(backend, attempt);
    else if (action === 'renew' && grant && attempt.state === 'held' && attempt.validUntil > this.time.now()) {
      void backend.renew(grant, LEASE).then((outcome) => {
        if (attempt.state !== 'held' || outcome === 'unknown') return;
        if (outcome === 'lost') this.#insist(backend, attempt);
        else if (attempt.validUntil > this.time.now()) attempt.validUntil = outcome.validUntil;
      });
    }
  }

  #insist(backend: DirectBackend<RedisBackend>, attempt: Attempt): void {
    attempt.state = 'over';
    const again = async () => {
      while ((await backend.release(attempt.ask, RELEASE)) === 'unknown') {
        await new Promise<void>((resolve) => this.time.setTimer(resolve, 100));
      }
    };
    void again();
  }

  async #crash(by: number): Promise<void> {
    this.crashed[by] = true;
    const network = this.networks[by] as InterleavedNetwork;
    network.late.push(...network.requests.splice(0));
    network.replies.length = 0;
    await network.deafen();
    void this.backends[by]?.close();
  }
}

describeUnless(clock ? undefined : NO_COMPILER)('every order of what happens between two processes and Redis', () => {
  let server: RedisServer;
  let admin: Redis;
  let listeners: Redis[];

  beforeAll(async () => {
    server = await startRedisServer({ env: clock?.env ?? {} });
    clock?.freeze(EPOCH);
    admin = new Redis(server.url);
    listeners = [new Redis(server.url), new Redis(server.url)];
  });
  afterAll(async () => {
    admin.disconnect();
    for (const listener of listeners) listener.disconnect();
    await server.stop();
    clock?.remove();
  });

  afterEach(() => {
    jest.restoreAllMocks();
  });

  async function inWorld(steps: readonly Step[]): Promise<World> {
    for (const listener of listeners) listener.removeAllListeners('message');
    const world = await World.create(admin, listeners);
    try {
      for (const each of steps) await world.run(each);
      await world.conclude();
    } finally {
      await world.close();
    }
    return world;
  }

  it(`never lets two in, never repeats a token, serves all, leaves nothing (${RUNS} runs; more in npm run test:long)`, async () => {
    let total = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60, size: 'max' }), async (steps) => {
        total += (await inWorld(steps)).cohorts;
      }),
      { numRuns: RUNS, ...(process.env.LOCK_SEED !== undefined && { seed: Number(process.env.LOCK_SEED) }) },
    );
    // Otherwise nothing was shown about the tokens of cohorts.
    expect(total).toBeGreaterThan(RUNS / 10);
  }, 3_600_000);

  const ask = (who: number, callers = 1): Step => ({
    do: 'ask',
    by: who,
    mode: 'exclusive',

    wait: 60_000,
    callers,
  });
  const at = (who: number, ...things: Extract<Step, { by: number }>['do'][]): Step[] =>
    things.map((thing) => ({ do: thing, by: who }) as Step);

  describe('a message that comes after the reply to a repeated ask, while the lock is held', () => {
    const steps: Step[] = [
      ...[ask(0), ...at(0, 'execute', 'answer')],
      // The second command reads the name of the holder.
      ...[ask(1), ...at(1, 'execute', 'answer', 'execute', 'answer')],
      ...[{ do: 'release', which: 0 } as const, ...at(0, 'execute', 'answer')],
      // It finds the grant before it hears of it.
      ...[{ do: 'wait', ms: 1_000 } as const, ...at(1, 'execute', 'answer', 'hear', 'execute')],
      ...[ask(0), ...at(0, 'execute', 'answer')],
    ];

    it('changes nothing', async () => {
      await inWorld(steps);
    });

    it('lets two in where the ids of granted requests are forgotten (guilty control)', async () => {
      const { onNotice } = RedisRequests.prototype;
      const { get, has } = HolderTable.prototype;
      const isGranted = (found: unknown) => found instanceof RedisRequest && found.isGranted;
      let inNotice = false;
      jest.spyOn(RedisRequests.prototype, 'onNotice').mockImplementation(function (this: RedisRequests, ...args) {
        inNotice = true;
        onNotice.apply(this, args);
        inNotice = false;
      });
      jest.spyOn(HolderTable.prototype, 'get').mockImplementation(function (this: HolderTable<unknown>, id) {
        const found: unknown = get.call(this, id);
        return inNotice && isGranted(found) ? undefined : found;
      });
      jest.spyOn(HolderTable.prototype, 'has').mockImplementation(function (this: HolderTable<unknown>, id) {
        return has.call(this, id) && !isGranted(get.call(this, id));
      });
      await expect(inWorld(steps)).rejects.toThrow('Two hold the key: exclusive in process 1, exclusive in process 0.');
    });
  });

  describe('a hold that is found again after an unknown outcome, when more callers have come', () => {
    const steps: Step[] = [
      // Tokens that are µs of Valkey 9.1 would leave room between two: its clock goes on within a millisecond.
      { do: 'run ahead' },
      ...[ask(0), ...at(0, 'execute', 'answer'), { do: 'release', which: 0 } as const, ...at(0, 'execute', 'answer')],
      // The reply is lost.
      ...[ask(1), ...at(1, 'execute', 'cut')],
      { do: 'callers', which: 1, callers: 5 },
      ...[{ do: 'again', which: 1 } as const, ...at(1, 'execute', 'answer', 'execute', 'answer', 'execute', 'answer')],
    ];

    it('has the last of its tokens, and no followers', async () => {
      await inWorld(steps);
    });

    it('gives out a token once more where it has followers (guilty control)', async () => {
      const { onReply } = RedisRequest.prototype;
      jest.spyOn(RedisRequest.prototype, 'onReply').mockImplementation(function (this: RedisRequest, reply, sentAt) {
        // As if it had been granted by this very ask, which was for more callers.
        onReply.call(this, typeof reply === 'string' ? reply.replace(/^h(\d{16}).*$/, '$1') : reply, sentAt);
      });
      await expect(inWorld(steps)).rejects.toThrow(/^Token \d+ after \d+\.$/);
    });
  });
});
