import { Redis } from 'ioredis';
import { LockUnavailableError } from '../../lib/index.js';
import {
  type AcquireRequest,
  type BackendContext,
  backOff,
  type Grant,
  type LockBackend,
  type LockCapabilities,
  type LockProvider,
  pause,
  type ReleaseOutcome,
  type RenewOutcome,
  validUntil,
} from '../../lib/provider-kit/index.js';

// Each script is idempotent per holder. ACQUIRE answers the ms that are left, 0 for a key of somebody else.
const ACQUIRE = `
  if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return tonumber(ARGV[2]) end
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PTTL', KEYS[1]) or 0`;
const RENEW = `
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`;
const RELEASE = `
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`;

/** Options, validated and stored. It opens nothing and keeps no state of an application. */
export class SmallProvider implements LockProvider {
  constructor(private readonly options: { readonly url: string }) {}

  createBackend(context: BackendContext): LockBackend {
    return new SmallBackend(context, this.options.url);
  }
}

/** One ask: what is kept of its request. */
class Ask {
  isOver = false;
  /** When the script in flight was sent. */
  sentAt: number | undefined;
}

class SmallBackend implements LockBackend<Ask> {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    fencing: false,
    lease: 'per-lock',
    minHold: false,
    forceRelease: false,
  };
  readonly #redis: Redis;
  /** The asks that are in flight. */
  readonly #asking = new Set<Ask>();

  constructor(
    private readonly context: BackendContext,
    url: string,
  ) {
    // The client sends nothing twice and keeps nothing for later: the core repeats what was not answered.
    this.#redis = new Redis(url, {
      ...{ lazyConnect: true, enableOfflineQueue: false, autoResendUnfulfilledCommands: false },
      ...{ maxRetriesPerRequest: 0, commandTimeout: 3_000 },
    });
    this.#redis.on('error', () => undefined);
  }

  async connect(): Promise<void> {
    try {
      await this.#redis.connect();
    } catch (cause) {
      throw this.#unavailable(cause);
    } finally {
      this.#redis.on('close', () => {
        this.context.emit({ type: 'unavailable', cause: new Error('The connection was lost.') });
      });
      this.#redis.on('ready', () => {
        this.context.emit({ type: 'recovered' });
      });
    }
  }

  async acquire(request: AcquireRequest<Ask>): Promise<Grant | 'busy'> {
    const { key, id, lease } = request;
    const { clock, random } = this.context;
    const ask = new Ask();
    request.state = ask;
    this.#asking.add(ask);
    try {
      for (let round = 0; !ask.isOver; round += 1) {
        // A caller whose wait ends during a pause asks once more.
        const isLast = request.wait <= 0 || request.signal.aborted;
        const sentAt = clock.now();
        ask.sentAt = sentAt;
        const left = await this.#run(ACQUIRE, key, id, lease);
        ask.sentAt = undefined;
        if (left > 0) return { lease, fencingToken: null, validUntil: validUntil(sentAt, left) };
        if (isLast) break;
        if (round === 0) request.waits();
        await pause(clock, backOff(random, round, { first: 10, most: 200 }), request.signal);
      }
      return 'busy';
    } catch (cause) {
      throw this.#unavailable(cause);
    } finally {
      this.#asking.delete(ask);
    }
  }

  unansweredFor({ state }: AcquireRequest<Ask>): number {
    return state?.sentAt === undefined ? 0 : this.context.clock.now() - state.sentAt;
  }

  async renew({ key, id }: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const sentAt = this.context.clock.now();
    try {
      const isHeld = (await this.#run(RENEW, key, id, lease)) === 1;
      return isHeld ? { validUntil: validUntil(sentAt, lease) } : 'lost';
    } catch {
      return 'unknown';
    }
  }

  async release({ key, id, state }: AcquireRequest<Ask>): Promise<ReleaseOutcome> {
    // No ask may follow the release. One that is in flight precedes it on the same connection.
    if (state) state.isOver = true;
    try {
      return (await this.#run(RELEASE, key, id)) === 1 ? 'released' : 'lost';
    } catch {
      return 'unknown';
    }
  }

  async close(): Promise<void> {
    for (const ask of this.#asking) ask.isOver = true;
    this.#redis.removeAllListeners('close');
    // QUIT is answered after the commands that are in flight.
    await this.#redis.quit().catch(() => this.#redis.disconnect());
  }

  #run(script: string, key: string, holder: string, lease = 0): Promise<number> {
    // Keys may contain anything, also lone surrogates, which UTF-8 would make equal.
    const name = `${this.context.namespace}:${Buffer.from(key, 'utf16le').toString('base64url')}`;
    return this.#redis.eval(script, 1, name, holder, Math.ceil(lease)) as Promise<number>;
  }

  #unavailable(cause: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" got no answer from Redis.`, { provider: name, cause });
  }
}
