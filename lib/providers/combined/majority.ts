import {
  type Grant,
  type Member,
  type ProviderContext,
  type ReleaseManner,
  type ReleaseOutcome,
} from '../../api/lock-provider.js';
import { pause } from '../../core/toolkit/pause.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { Holding } from './holding.js';
import { isHeld, type Part, UNUSED } from './part.js';
import type { Quorum } from './quorum.js';

// Between two rounds. Long enough for another caller's round to end, jittered so that two that split the engines do not meet again.
const RETRY_FIRST = 20;
const RETRY_AT_MOST = 200;

/** More than half of the engines, all asked at once and without waiting in any: whoever loses gives back and tries again. */
export class Majority implements Quorum {
  readonly needed: number;

  constructor(
    private readonly engines: readonly Member[],
    private readonly context: ProviderContext,
  ) {
    this.needed = Math.floor(engines.length / 2) + 1;
  }

  async acquire(holding: Holding, departure: AbortSignal): Promise<Grant | 'busy' | 'refused'> {
    const { holder, wait } = holding.request;
    for (let round = 0; !holding.isReleasing; round += 1) {
      // A caller whose time is up while it pauses gets a last round: the lock may have become free.
      const isLast = wait <= 0 || departure.aborted;
      if (await this.#round(holding)) return holding.complete();
      if (isLast) break;
      if (round === 0) this.context.emit({ type: 'waiting', holder });
      await this.#pause(round, departure);
    }
    // Released under way, it is given back as what that release is told.
    return holding.isReleasing ? 'busy' : 'refused';
  }

  release(holding: Holding, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return holding.releaseTogether(manner);
  }

  /** Asks all, and answers whether a majority has granted as soon as that is known. @throws LockUnavailableError */
  async #round(holding: Holding): Promise<boolean> {
    const { engines, context, needed } = this;
    const round = new Round(holding, engines, engines.length - needed, () => context.random.id());
    await round.decided();
    if (holding.isReleasing) return false;
    if (holding.isGranted) return true;
    await round.giveBack();
    if (round.isRefused) return false;
    const { key } = holding.request;
    throw new LockUnavailableError(
      `Too few of ${engines.length} engines answered in time when they were asked for "${key}".`,
      {
        key,
        cause: round.cause,
      },
    );
  }

  #pause(round: number, departure: AbortSignal): Promise<void> {
    const { clock, random } = this.context;
    const delay = Math.min(RETRY_FIRST * 2 ** round, RETRY_AT_MOST) * (0.5 + random.fraction() / 2);
    return pause(clock, delay, departure);
  }
}

/** One ask of all engines. */
class Round {
  /** Why an engine has not answered. */
  cause: unknown;
  /**
   * Never aborts: engines answer an attempt without a wait at once. One for each round, since a queue may listen to it for as
   * long as it lives.
   */
  readonly #signal = new AbortController().signal;
  readonly #parts: Part[] = [];
  readonly #unanswered = new Set<Part>();
  #refusals = 0;
  #isDecided = false;
  #isOver = false;

  /** @param spare how many engines may refuse */
  constructor(
    private readonly holding: Holding,
    private readonly engines: readonly Member[],
    private readonly spare: number,
    private readonly newId: () => string,
  ) {}

  /** So many have refused that the others are no majority. */
  get isRefused(): boolean {
    return this.#refusals > this.spare;
  }

  /** Nothing more is to be asked for. */
  get #isClosed(): boolean {
    return this.#isDecided || this.holding.isReleasing;
  }

  /** Resolves as soon as more answers would change nothing. */
  decided(): Promise<void> {
    return new Promise((resolve) => {
      const decide = () => {
        this.#isDecided = true;
        resolve();
      };
      const left = this.holding.left();
      const answers = this.engines.map(async (engine) => {
        await this.#ask(
          engine,
          left.find((part) => part.engine === engine),
        );
        if (this.holding.isGranted || this.isRefused) decide();
      });
      void Promise.all(answers).then(decide);
    });
  }

  /**
   * Gives back what was granted. What was not answered is given back in the background: an engine that is down delays nobody,
   * and what it may still hold ends with the lease.
   */
  async giveBack(): Promise<void> {
    this.#isOver = true;
    const granted = this.#parts.filter(isHeld);
    for (const part of this.#unanswered) void this.holding.giveBack(part);
    await Promise.all(granted.map((part) => this.holding.giveBack(part)));
  }

  /**
   * @param left what an earlier round left in the engine. That must be gone first: each ask of an engine that is down would
   * leave one more to release, and each id that was released is dead.
   */
  async #ask(engine: Member, left: Part | undefined): Promise<void> {
    if (left && !(await this.holding.giveBack(left))) {
      this.cause ??= left.failure;
      return;
    }
    // Nobody would give it back.
    if (this.#isClosed) return;
    const part = this.holding.begin(engine, this.newId());
    this.#parts.push(part);
    this.#unanswered.add(part);
    try {
      const answer = await this.holding.ask(part, { wait: 0, signal: this.#signal });
      this.#unanswered.delete(part);
      if (answer === 'busy') {
        this.#refusals += 1;
        this.holding.forget(part);
      } else if (this.#isOver || this.holding.isReleasing) await part.engine.release(answer, UNUSED);
      else this.holding.granted(part, answer);
    } catch (error) {
      part.failure = error;
      this.cause ??= error;
    }
  }
}
