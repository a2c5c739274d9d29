import type {
  AcquireRequest,
  CompositeProvider,
  Grant,
  Holder,
  LockCapabilities,
  Member,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { AllInOrder } from './all-in-order.js';
import { type CombinedProviderOptions, checkOptions } from './combined-options.js';
import { capabilitiesOf } from './combined-capabilities.js';
import { forceRelease, inspect, isReachable } from './engine-questions.js';
import { Holdings, unconfirmed } from './holdings.js';
import { Majority } from './majority.js';
import { UNUSED } from './part.js';
import type { Quorum } from './quorum.js';
import { renewHolding } from './renewal.js';

interface Running {
  readonly context: ProviderContext;
  readonly quorum: Quorum;
  readonly holdings: Holdings;
}

/**
 * One lock in several engines, which are other providers of the same application.
 *
 * - `quorum: 'all'` holds what every engine has granted. Mutual exclusion holds while at least one engine keeps it, among all
 *   processes that use that engine, alone or combined: this is how an application moves from one engine to another. Down as
 *   soon as one of them is.
 * - `quorum: 'majority'` holds what more than half have granted. Mutual exclusion holds while no engine loses data during a
 *   hold. Goes on while more than half answer. A part that is lost is not taken again during the hold.
 *
 * All processes must name the same engines, or the same and others as docs/providers/combined.md describes. There is no
 * fencing token: those of different engines cannot be compared.
 */
export class CombinedProvider implements CompositeProvider {
  readonly memberNames: readonly string[];
  /** What the provider offers if all engines do. */
  inspect?: (key: string) => Promise<LockInfo | null>;
  forceRelease?: (key: string) => Promise<boolean>;
  readonly #options: CombinedProviderOptions;
  /** The asks under way, by their holders. */
  readonly #departures = new Map<string, AbortController>();
  readonly #down = new Set<Member>();
  #engines: readonly Member[] = [];
  #capabilities: LockCapabilities | undefined;
  #running: Running | undefined;

  /** @throws LockConfigError for options that cannot work. Opens nothing. */
  constructor(options: CombinedProviderOptions) {
    checkOptions(options);
    this.#options = options;
    this.memberNames = options.engines;
  }

  /** What all engines can do. */
  get capabilities(): LockCapabilities {
    if (this.#capabilities) return this.#capabilities;
    throw new LockConfigError(
      'A CombinedProvider was used before it got its engines: register them in the same module.',
    );
  }

  compose(members: ReadonlyMap<string, Member>): void {
    this.#capabilities = capabilitiesOf(members, this.#options.quorum);
    this.#engines = [...members.values()];
    for (const engine of this.#engines) {
      engine.observe((event) => {
        this.#hear(engine, event);
      });
    }
    if (!this.#capabilities.forceRelease) return;
    this.inspect = (key) => inspect(this.#engines, this.#started().quorum.needed, key);
    this.forceRelease = (key) => forceRelease(this.#engines, this.#started().quorum.needed, key);
  }

  async start(context: ProviderContext): Promise<void> {
    const quorum = new { all: AllInOrder, majority: Majority }[this.#options.quorum](this.#engines, context);
    this.#running = { context, quorum, holdings: new Holdings(quorum, context) };
    const { needed } = quorum;
    const answers = await Promise.all(this.#engines.map((engine) => isReachable(engine, context.random.id())));
    const up = answers.filter(Boolean).length;
    if (up >= needed) return;
    const silent = this.memberNames.filter((_, index) => !answers[index]);
    throw new LockUnavailableError(
      `Lock provider "${context.name}" needs ${needed} of its engines, but ${silent.map((name) => `"${name}"`).join(', ')} did not answer.`,
      { provider: context.name },
    );
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { quorum, holdings } = this.#started();
    holdings.forgetOrphans();
    const departure = this.#departureOf(request);
    try {
      for (;;) {
        const holding = await holdings.of(request);
        if (holding.isComplete) return holding.complete();
        const answer = await quorum.acquire(holding, departure.signal);
        if (typeof answer === 'object') return answer;
        if (answer === 'refused') {
          holdings.refused(holding);
          return 'busy';
        }
        if ((await holdings.end(request.holder, UNUSED)) === 'unknown') throw unconfirmed(request.key);
        if (answer === 'busy' || departure.signal.aborted || request.wait <= 0) return 'busy';
      }
    } finally {
      // No longer listens to the caller, who may ask again and again with the same signal.
      departure.abort();
      if (this.#departures.get(request.holder) === departure) this.#departures.delete(request.holder);
    }
  }

  async renew({ holder }: Grant, lease: number): Promise<RenewOutcome> {
    const holding = this.#started().holdings.get(holder);
    return holding && !holding.isReleasing ? renewHolding(holding, lease) : 'lost';
  }

  release({ holder }: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    const outcome = this.#started().holdings.end(holder, manner);
    // An ask that is still under way finds its holding dead.
    this.#departures.get(holder)?.abort();
    return outcome;
  }

  stop(): Promise<void> {
    this.#running?.holdings.stop();
    return Promise.resolve();
  }

  /** Aborts when the caller leaves, and when its attempt is released. */
  #departureOf(request: AcquireRequest): AbortController {
    const departure = new AbortController();
    this.#departures.set(request.holder, departure);
    // Reading the signal makes it.
    if (request.wait <= 0) return departure;
    const leave = () => {
      departure.abort();
    };
    if (request.signal.aborted) leave();
    else request.signal.addEventListener('abort', leave, { signal: departure.signal });
    return departure;
  }

  #hear(engine: Member, event: ProviderEvent): void {
    if (!this.#running) return;
    const { context, quorum, holdings } = this.#running;
    switch (event.type) {
      case 'waiting': {
        const holding = holdings.withPart(event.holder);
        if (holding) context.emit({ type: 'waiting', holder: holding.request.holder });
        break;
      }
      case 'lost': {
        const holding = holdings.withPart(event.holder);
        holding?.lost(event.holder);
        if (holding?.isComplete && !holding.isGranted) context.emit({ ...event, holder: holding.request.holder });
        break;
      }
      case 'unavailable':
        this.#down.add(engine);
        if (this.#engines.length - this.#down.size < quorum.needed) context.emit(event);
        break;
      case 'recovered':
        this.#down.delete(engine);
        context.emit(event);
        break;
    }
  }

  #started(): Running {
    if (this.#running) return this.#running;
    throw new LockConfigError('A CombinedProvider was used before it was started.');
  }
}
