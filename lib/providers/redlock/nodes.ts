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

/** The share of a lease that a node may take to reply, so most of the lease is left after a round. */
const SHARE_OF_LEASE = 0.1;

/** Why a poll failed, and how many nodes definitely refused it. */
interface Faults {
  readonly cause: unknown;
  readonly refusals: number;
}

/** All of a provider's nodes. */
export class RedlockNodes {
  /** Empty until {@link connect} runs. */
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

  /** All requests' rounds share one sequence, so a cleanup never ends a vote from the same holder's later round. */
  nextRound(): string {
    this.#rounds += 1;
    return roundDigits(this.#rounds);
  }

  /**
   * Connects to all nodes. A majority is enough.
   *
   * @throws LockConfigError if two nodes are the same server, or one belongs to a Cluster; LockUnavailableError if no
   * majority responds
   */
  async connect(): Promise<void> {
    const { context, settings, layout, all } = this;
    const majority = new Promise<void>((resolve) => (this.#onMajority = resolve));
    const connects = await Promise.all(settings.nodes.map((node) => connectionsOf(node, context.random)));
    // `close` was called before the nodes existed, so it could not close them.
    if (this.#isClosing) {
      const message = `Lock provider "${context.name}" cannot connect, because the application is shutting down.`;
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
    // Give the other nodes a moment, so wrong addresses are noticed at startup.
    await withTimeout(context.clock, settings.commandTimeout, tries);
    this.#isConnected = true;
    this.#refuseUnfit();
    this.#hadMajority = this.#hasMajority();
    if (!this.#hadMajority) {
      const reached = `Lock provider "${context.name}" can reach only ${this.#ready()} of ${this.count} Redis nodes, but it needs ${this.majority}.`;
      throw this.#errorOf(reached, 'Check their addresses and credentials, and that they are up.', 0, {
        provider: context.name,
        cause: this.#cause(),
      });
    }
  }

  /** How long the nodes may take to reply for a lock with this lease, in ms. */
  timeoutOf(lease: number): number {
    return Math.min(this.settings.commandTimeout, lease * SHARE_OF_LEASE);
  }

  /** Sends a command to all nodes at the end of this tick. Commands stay in order. */
  send(command: RedlockCommand): void {
    // Send to silent nodes last: each send takes time, during which responsive nodes can already work.
    for (const node of [...this.all].sort((one, other) => one.unanswered - other.unanswered)) node.send(command);
  }

  /**
   * The error for a poll without replies from a majority.
   *
   * @param refusals how many nodes definitely refused it
   */
  unavailable(key: string, { cause, refusals }: Faults, sent = true): LockError {
    const { name } = this.context;
    const what = `Lock "${key}" of provider "${name}": fewer than ${this.majority} of the ${this.count} Redis nodes responded in time.`;
    return this.#errorOf(what, 'Check the nodes and their logs.', refusals, { key, provider: name, cause, sent });
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    // Wait for the end of this tick, when its commands are sent.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    await Promise.all(this.all.map((node) => node.close()));
  }

  /** @throws LockConfigError if nodes are too old or don't fail independently of each other */
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
   * Creates the error for a missing majority. If a node refuses, the message starts with the remedy. The error is a
   * `LockConfigError` if so many nodes refuse that the others can't form a majority. Otherwise, nodes that are down may
   * come back.
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

// How long an agreed token is used for estimates, in ms. Two clocks drift apart by up to 100 µs a second, which is up
// to 6 ms in this time.
const RECENT = 60_000;

/**
 * Estimates which token the nodes will accept.
 *
 * A token must be larger than all earlier ones, and a majority must know it before it is used. Querying the nodes and
 * then writing the largest reply back takes two round trips. If the vote requests already carry a token that is larger
 * than the counters of a majority, one round trip is enough. Starting from the last agreed token, the estimate grows
 * with the clock, so tokens stay close to their grant times. The estimate may be wrong: if a node knows a larger token,
 * it returns that one, and the round takes two round trips.
 */
class Tokens {
  /**
   * Whether the next grant must write its token to the nodes, while they have a vote for that grant: a node without a
   * counter replied after the last decision, perhaps even after the release.
   */
  isMissingAtNode = false;
  #agreed = 0;
  #agreedAt = -Infinity;
  #last = 0;

  /** A majority has just agreed on this token, which is based on the nodes' own tokens. */
  observe(token: number, now: number): void {
    this.#agreed = token;
    this.#agreedAt = now;
    this.#last = Math.max(this.#last, token);
  }

  /** The first of `count` tokens to propose; `undefined` if the last agreement is too old for an estimate. */
  next(now: number, count: number): number | undefined {
    if (now - this.#agreedAt > RECENT) return undefined;
    const first = Math.max(this.#last + 1, this.#agreed + Math.floor((now - this.#agreedAt) * 1_000));
    this.#last = first + count - 1;
    return first;
  }
}
