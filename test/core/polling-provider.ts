import type { AcquireRequest, Grant, LockCapabilities, ProviderContext } from '../../lib/api/lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import type { LockTable } from '../../lib/providers/memory/lock-table.js';

const POLL = 5;

/** Memory as a backend without a queue: it waits by asking again, so that the engine's queue stands in front. */
export class PollingProvider extends MemoryLockProvider {
  override readonly capabilities: LockCapabilities = { ...CAPABILITIES, queue: 'engine', fair: false };
  /** How many waiters stand in the backend now, and at most ever. */
  waiters = 0;
  mostWaiters = 0;
  #context!: ProviderContext;

  constructor(table: LockTable) {
    super({ table });
  }

  override start(context: ProviderContext): Promise<void> {
    this.#context = context;
    return super.start(context);
  }

  override async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { clock } = this.#context;
    const once = { ...termsOf(request), wait: 0 };
    const giveUpAt = clock.now() + request.wait;
    let answer = await super.acquire(once);
    if (answer !== 'busy' || request.wait <= 0) return answer;
    this.#context.emit({ type: 'waiting', holder: request.holder });
    this.waiters += 1;
    this.mostWaiters = Math.max(this.mostWaiters, this.waiters);
    while (answer === 'busy' && clock.now() < giveUpAt) {
      await this.#pause(request.signal);
      if (request.signal.aborted) break;
      answer = await super.acquire(once);
    }
    this.waiters -= 1;
    return answer;
  }

  #pause(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#context.clock.setTimer(() => {
        signal.removeEventListener('abort', stop);
        resolve();
      }, POLL);
      const stop = () => {
        this.#context.clock.clearTimer(timer);
        resolve();
      };
      signal.addEventListener('abort', stop, { once: true });
    });
  }
}

const CAPABILITIES = new MemoryLockProvider().capabilities;

function termsOf({ key, holder, mode, lease, renew, minHold, options, signal }: AcquireRequest) {
  return { key, holder, mode, lease, renew, minHold, options, signal };
}
