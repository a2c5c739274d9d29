import type { Clock } from '../../api/clock.js';
import { LockConfigError, type LockError, LockUnavailableError } from '../../api/errors.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { nextTick } from '../../core/toolkit/real-timers.js';
import { withTimeout } from '../../core/toolkit/timing.js';
import { isDefiniteRefusal, refusalIn } from '../redis/client/refusals.js';
import { connectionsOf } from '../redis/client/redis-options.js';
import type { RedlockKeyLayout } from './key-layout.js';
import { roundDigits } from './lock-script.js';
import { type RedlockCommand, RedlockNode } from './node.js';
import type { RedlockSettings } from './redlock-options.js';

/** The share of a lease that a node may take to answer: a round must leave most of it. */
const SHARE_OF_LEASE = 0.1;

/** Why a question has no answer, and how many nodes have refused it for good. */
interface Faults {
  readonly cause: unknown;
  readonly refusals: number;
}

/** The nodes together. */
export class RedlockNodes {
  /** Empty until {@link connect}. */
  readonly all: RedlockNode[] = [];
  readonly tokens = new Tokens();
  #rounds = 0;
  #hadMajority = false;
  #isConnected = false;
  #isClosing = false;
  #onMajority: (() => void) | undefined;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: RedlockSettings,
    private readonly layout: RedlockKeyLayout,
  ) {}

  get count(): number {
    return this.settings.nodes.length;
  }

  get clock(): Clock {
    return this.context.clock;
  }

  get majority(): number {
    return Math.floor(this.count / 2) + 1;
  }

  /** Rounds of all requests are numbered in one sequence, so that a clean-up never meets a later round of the same holder. */
  nextRound(): string {
    this.#rounds += 1;
    return roundDigits(this.#rounds);
  }

  /**
   * Connects to all; a majority is enough.
   *
   * @throws LockConfigError when two nodes are one server, or one belongs to a Cluster. LockUnavailableError when no majority answers.
   */
  async connect(): Promise<void> {
    const { context, settings, layout, all } = this;
    const majority = new Promise<void>((resolve) => (this.#onMajority = resolve));
    const connects = await Promise.all(settings.nodes.map((node) => connectionsOf(node, context.random)));
    // `close` has come meanwhile, and could not close what did not exist yet.
    if (this.#isClosing) {
      const message = `Lock provider "${context.name}" does not connect, because the application stops.`;
      throw new LockUnavailableError(message, { provider: context.name, sent: false });
    }
    connects.forEach((connect, index) => {
      const onChange = () => {
        this.#onChange();
      };
      all.push(new RedlockNode(context, settings, layout, connect(), index, all, onChange));
    });
    const tries = Promise.allSettled(all.map((node) => node.connect()));
    await Promise.race([tries, majority]);
    // The others have a moment more: a mistake in the addresses is better found now than later.
    await withTimeout(context.clock, settings.commandTimeout, tries);
    this.#isConnected = true;
    this.#refuseUnfit();
    this.#hadMajority = this.#hasMajority();
    if (!this.#hadMajority) {
      const reached = `Lock provider "${context.name}" reaches ${this.#ready()} of ${this.count} Redis nodes, which is no majority.`;
      throw this.#errorOf(reached, 'Check their addresses and credentials, and that they are up.', 0, {
        provider: context.name,
        cause: this.#cause(),
      });
    }
  }

  /** How long the nodes have for an answer about a lock with this lease, in ms. */
  timeoutOf(lease: number): number {
    return Math.min(this.settings.commandTimeout, lease * SHARE_OF_LEASE);
  }

  /** Sends at the end of this tick, in the order of the calls. */
  send(command: RedlockCommand): void {
    // One that has fallen silent is the last, because each sending takes time in which the others work already.
    for (const node of [...this.all].sort((one, other) => one.unanswered - other.unanswered)) node.send(command);
  }

  /**
   * The error for a question that no majority has answered.
   *
   * @param refusals how many nodes have refused it for good
   */
  unavailable(key: string, { cause, refusals }: Faults, sent = true): LockError {
    const { name } = this.context;
    const what = `Lock "${key}" of provider "${name}": no majority of the ${this.count} Redis nodes answered in time.`;
    return this.#errorOf(what, 'Check the nodes and their logs.', refusals, { key, provider: name, cause, sent });
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    // Commands of this tick are sent at its end.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    await Promise.all(this.all.map((node) => node.close()));
  }

  /** @throws LockConfigError for nodes that are too old, or whose failures are not independent of each other. */
  #refuseUnfit(): void {
    const { name } = this.context;
    for (const { unfitness, cause, index } of this.all) {
      if (cause instanceof LockConfigError) throw cause;
      if (unfitness === undefined) continue;
      throw new LockConfigError(`Lock provider "${name}": node ${index + 1} ${unfitness}`, { provider: name });
    }
  }

  #onChange(): void {
    const hasMajority = this.#hasMajority();
    if (hasMajority) this.#onMajority?.();
    if (!this.#isConnected || this.#isClosing || hasMajority === this.#hadMajority) return;
    this.#hadMajority = hasMajority;
    this.context.emit(hasMajority ? { type: 'recovered' } : { type: 'unavailable', cause: this.#cause() });
  }

  #ready(): number {
    return this.all.filter(({ isReady }) => isReady).length;
  }

  #hasMajority(): boolean {
    return this.#ready() >= this.majority;
  }

  /**
   * The remedy for nodes that do not answer: where one refuses, that comes first. It is a refusal if so many refuse that the others are no
   * majority; otherwise the nodes that are down may come back.
   */
  #errorOf(
    what: string,
    otherwise: string,
    refusals: number,
    details: { readonly key?: string; readonly provider: string; readonly cause: unknown; readonly sent?: boolean },
  ): LockError {
    const causes = this.all.filter(({ isReady }) => !isReady).map(({ cause }) => cause);
    const words = [...causes, details.cause].map((cause) => refusalIn(cause)?.words).find((each) => each !== undefined);
    const message = `${what} ${words === undefined ? otherwise : `A node refuses: ${words}`}`;
    const isRefused = Math.max(refusals, causes.filter(isDefiniteRefusal).length) > this.count - this.majority;
    return isRefused
      ? new LockConfigError(message, { ...details, refused: true })
      : new LockUnavailableError(message, details);
  }

  #cause(): unknown {
    return this.all.find(({ isReady }) => !isReady)?.cause;
  }
}

// Two clocks drift apart by up to 100 µs a second: after this many ms, 6 ms.
const RECENT = 60_000;

/**
 * Estimates which token the nodes will accept.
 *
 * A token has to be larger than all earlier ones, and a majority has to know it before it is used. Asking the nodes first and writing
 * the largest answer back takes two round trips. When the votes carry a token that is larger than the counters of a majority, one
 * is enough. The estimate grows as the nodes' own clocks do, from the last token that they agreed on, so that tokens stay near their
 * time. Nothing depends on it being right: nodes that know a larger token answer with theirs, and the two round trips are made.
 */
class Tokens {
  #isMissingAtNode = false;
  #agreed = 0;
  #agreedAt = -Infinity;
  #last = 0;

  /** The next grant has to write its token to the nodes. */
  get isMissingAtNode(): boolean {
    return this.#isMissingAtNode;
  }

  /**
   * A node without a counter has answered after a decision, and maybe after a release: the next grant writes its token to the nodes,
   * while that node has a vote for it.
   */
  missedAtNode(): void {
    this.#isMissingAtNode = true;
  }

  /** A grant was agreed on, and has written its token if that was missing. */
  granted(): void {
    this.#isMissingAtNode = false;
  }

  /** A majority has agreed on this token just now, after the nodes have named theirs. */
  observe(token: number, now: number): void {
    this.#agreed = token;
    this.#agreedAt = now;
    this.#last = Math.max(this.#last, token);
  }

  /** The first of `count` tokens that this process has not named yet; nothing when the nodes have not agreed on one for long. */
  next(now: number, count: number): number | undefined {
    if (now - this.#agreedAt > RECENT) return undefined;
    const first = Math.max(this.#last + 1, this.#agreed + Math.floor((now - this.#agreedAt) * 1_000));
    this.#last = first + count - 1;
    return first;
  }
}
