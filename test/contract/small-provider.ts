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

// Each script is idempotent per holder. ACQUIRE returns the remaining milliseconds, or 0 if another holder has the key.
const ACQUIRE = `
  if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return tonumber(ARGV[2]) end
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PTTL', KEYS[1]) or 0`;
const RENEW = `
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 1`;
const RELEASE = `
  return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`;

/** Stores the options. It opens nothing and keeps no state of an application. */
export class SmallProvider implements LockProvider {
  constructor(private readonly options: { readonly url: string }) {}

  createBackend(context: BackendContext): LockBackend {
    return new SmallBackend(context, this.options.url);
  }
}

/** An acquire attempt, which the backend keeps in `request.state`. */
class Attempt {
  isOver = false;
  /** When the script in flight was sent. */
  sentAt: number | undefined;
}

class SmallBackend implements LockBackend<Attempt> {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    fencing: false,
    lease: 'per-lock',
    minHold: false,
    forceRelease: false,
  };
  readonly #redis: Redis;
  readonly #attempts = new Set<Attempt>();

  constructor(
    private readonly context: BackendContext,
    url: string,
  ) {
    // The client must not resend or queue commands, because the core repeats what was not answered.
    this.#redis = new Redis(url, {
      lazyConnect: true,
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      commandTimeout: 3_000,
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

  async acquire(request: AcquireRequest<Attempt>): Promise<Grant | 'busy'> {
    const { key, id, lease } = request;
    const { clock, random } = this.context;
    const attempt = new Attempt();
    request.state = attempt;
    this.#attempts.add(attempt);
    try {
      for (let round = 0; !attempt.isOver; round += 1) {
        // If the wait ends during a pause, try one last time.
        const isLast = request.wait <= 0 || request.signal.aborted;
        const sentAt = clock.now();
        attempt.sentAt = sentAt;
        const left = await this.#run(ACQUIRE, key, id, lease);
        attempt.sentAt = undefined;
        if (left > 0) return { lease, fencingToken: null, validUntil: validUntil(sentAt, left) };
        if (isLast) break;
        if (round === 0) request.waits();
        await pause(clock, backOff(random, round, { first: 10, most: 200 }), request.signal);
      }
      return 'busy';
    } catch (cause) {
      throw this.#unavailable(cause);
    } finally {
      this.#attempts.delete(attempt);
    }
  }

  unansweredFor({ state }: AcquireRequest<Attempt>): number {
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

  async release({ key, id, state }: AcquireRequest<Attempt>): Promise<ReleaseOutcome> {
    // Send no acquire after the release. One in flight precedes it on the same connection.
    if (state) state.isOver = true;
    try {
      return (await this.#run(RELEASE, key, id)) === 1 ? 'released' : 'lost';
    } catch {
      return 'unknown';
    }
  }

  async close(): Promise<void> {
    for (const attempt of this.#attempts) attempt.isOver = true;
    this.#redis.removeAllListeners('close');
    // Redis answers QUIT after the commands in flight.
    await this.#redis.quit().catch(() => this.#redis.disconnect());
  }

  #run(script: string, key: string, holder: string, lease = 0): Promise<number> {
    // Keys may contain lone surrogates, which UTF-8 would make equal.
    const name = `${this.context.namespace}:${Buffer.from(key, 'utf16le').toString('base64url')}`;
    return this.#redis.eval(script, 1, name, holder, Math.ceil(lease)) as Promise<number>;
  }

  #unavailable(cause: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(`Lock provider "${name}" got no answer from Redis.`, { provider: name, cause });
  }
}
