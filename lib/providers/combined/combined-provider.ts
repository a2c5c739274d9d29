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
  Renewal,
  RenewOutcome,
} from '../../engine/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lock/errors.js';
import type { LockInfo } from '../../lock/lock-info.js';
import { AllInOrder } from './all-in-order.js';
import { type CombinedProviderOptions, checkOptions } from './combined-options.js';
import { capabilitiesOf } from './combined-capabilities.js';
import { Holding } from './holding.js';
import { Leftovers } from './leftovers.js';
import { Majority } from './majority.js';
import { UNUSED } from './part.js';
import type { Quorum } from './quorum.js';
import { renewAll } from './renewal.js';

// Asked for at the start, to see who answers.
const PROBE_KEY = 'nestjs-distributed-lock:probe';
// Each look goes over all of them, and while an engine is down each caller leaves one more.
const FORGET_EVERY = 1_000;

interface Running {
  readonly context: ProviderContext;
  readonly quorum: Quorum;
  readonly leftovers: Leftovers;
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
  readonly #holdings = new Map<string, Holding>();
  /** By the holder ids of their parts. */
  readonly #owners = new Map<string, Holding>();
  /** What could not be given back. */
  readonly #orphans = new Set<Holding>();
  #forgottenAt = -Infinity;
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
    this.inspect = (key) => this.#inspect(key);
    this.forceRelease = (key) => this.#forceRelease(key);
  }

  async start(context: ProviderContext): Promise<void> {
    const quorum = new { all: AllInOrder, majority: Majority }[this.#options.quorum](this.#engines, context);
    this.#running = { context, quorum, leftovers: new Leftovers(context) };
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
    const { quorum, leftovers } = this.#started();
    this.#forgetOrphans();
    const departure = this.#departureOf(request);
    try {
      for (;;) {
        const holding = await this.#holdingOf(request);
        if (holding.isComplete) return holding.complete();
        const answer = await quorum.acquire(holding, departure.signal);
        if (typeof answer === 'object') return answer;
        if (answer === 'refused') {
          this.#holdings.delete(request.holder);
          leftovers.add(holding);
          return 'busy';
        }
        if ((await this.#end(request.holder, UNUSED)) === 'unknown') throw unconfirmed(request.key);
        if (answer === 'busy' || departure.signal.aborted || request.wait <= 0) return 'busy';
      }
    } finally {
      // No longer listens to the caller, who may ask again and again with the same signal.
      departure.abort();
      if (this.#departures.get(request.holder) === departure) this.#departures.delete(request.holder);
    }
  }

  renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    return renewAll(
      renewals.map(({ grant, lease }) => {
        const holding = this.#holdings.get(grant.holder);
        return { holding: holding?.isReleasing ? undefined : holding, lease };
      }),
      this.#started().context.clock,
    );
  }

  release({ holder }: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    const outcome = this.#end(holder, manner);
    // An ask that is still under way finds its holding dead.
    this.#departures.get(holder)?.abort();
    return outcome;
  }

  stop(): Promise<void> {
    this.#running?.leftovers.stop();
    return Promise.resolve();
  }

  /** The holding that this holder has, or a new one with new ids if those it had are dead. */
  async #holdingOf(request: AcquireRequest): Promise<Holding> {
    const known = this.#holdings.get(request.holder);
    if (known && !known.isReleasing) {
      known.askedAgain(request);
      return known;
    }
    if (known && (await this.#end(request.holder, UNUSED)) === 'unknown') throw unconfirmed(request.key);
    const { context, quorum } = this.#started();
    const holding = new Holding(request, quorum.needed, context.clock, this.#owners);
    this.#holdings.set(request.holder, holding);
    return holding;
  }

  async #end(holder: string, manner: ReleaseManner): Promise<ReleaseOutcome> {
    const holding = this.#holdings.get(holder);
    if (!holding) return 'lost';
    const outcome = await this.#started().quorum.release(holding, holding.end(manner));
    if (outcome === 'unknown') this.#orphans.add(holding);
    else {
      this.#holdings.delete(holder);
      this.#orphans.delete(holding);
      // Enough have confirmed it. What another one still has would keep others out of that engine for a lease.
      void holding.answered().then(() => {
        this.#started().leftovers.add(holding);
      });
    }
    return outcome;
  }

  /** Forgets what could not be given back and is over by now. */
  #forgetOrphans(): void {
    const now = this.#started().context.clock.now();
    if (now < this.#forgottenAt + FORGET_EVERY) return;
    this.#forgottenAt = now;
    for (const holding of this.#orphans) {
      if (holding.left().length > 0) continue;
      this.#orphans.delete(holding);
      this.#holdings.delete(holding.request.holder);
    }
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
    const { context, quorum } = this.#running;
    switch (event.type) {
      case 'waiting': {
        const holding = this.#owners.get(event.holder);
        if (holding) context.emit({ type: 'waiting', holder: holding.request.holder });
        break;
      }
      case 'lost': {
        const holding = this.#owners.get(event.holder);
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

  async #inspect(key: string): Promise<LockInfo | null> {
    const { needed } = this.#started().quorum;
    const answers = await Promise.allSettled(
      this.#engines.map(async (engine) => (await engine.inspect?.(key)) ?? null),
    );
    const infos = answers.flatMap((answer) => (answer.status === 'fulfilled' ? (answer.value ?? []) : []));
    const silent = answers.filter((answer) => answer.status === 'rejected');
    const [first] = infos;
    if (first && infos.length >= needed) return { ...first, fencingToken: null };
    // Those that were silent might make up the number.
    if (infos.length + silent.length >= needed && silent[0]) throw silent[0].reason;
    return null;
  }

  /** In reverse, as releases are; whatever becomes of each. */
  async #forceRelease(key: string): Promise<boolean> {
    const { needed } = this.#started().quorum;
    const failures: unknown[] = [];
    let had = false;
    for (const engine of this.#engines.toReversed()) {
      try {
        had = ((await engine.forceRelease?.(key)) ?? false) || had;
      } catch (error) {
        failures.push(error);
      }
    }
    // A holder that keeps as many as it takes has lost nothing.
    if (failures.length >= needed) throw failures[0];
    return had;
  }

  #started(): Running {
    if (this.#running) return this.#running;
    throw new LockConfigError('A CombinedProvider was used before it was started.');
  }
}

/** Whether the engine can be reached: it is asked to release what nobody holds, which changes nothing. */
async function isReachable(engine: Member, holder: string): Promise<boolean> {
  try {
    // Some know without asking that they hold nothing, and have to look when they are inspected.
    await engine.inspect?.(PROBE_KEY);
    return (await engine.release({ key: PROBE_KEY, holder, mode: 'exclusive' }, UNUSED)) !== 'unknown';
  } catch {
    return false;
  }
}

function unconfirmed(key: string): LockUnavailableError {
  return new LockUnavailableError(
    `An engine did not confirm that it gave back "${key}"; what it may still hold ends with its lease.`,
    { key },
  );
}
