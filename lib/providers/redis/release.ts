import type { Clock } from '../../api/clock.js';
import type { Holder, ReleaseOutcome } from '../../api/lock-provider.js';
import { HEAVY } from './dispatcher.js';
import { type Operation, type OperationArguments, wholeMs } from './operation.js';
import type { Servers } from './servers.js';

/** Ends a hold, and leaves the queue if the attempt may stand there. */
export class Release implements Operation {
  readonly isAsk = false;
  readonly weight = HEAVY;

  constructor(
    readonly lock: string,
    private readonly holder: Holder,
    /** Others of the same claim who have had the lock under this holder's name. */
    private readonly others: readonly { readonly request: Holder }[],
    private readonly keepFor: number,
    private readonly claim: string,
    private readonly onOutcome: (outcome: ReleaseOutcome) => void,
  ) {}

  encode(): OperationArguments {
    const { mode, holder } = this.holder;
    let holders = holder;
    for (const { request } of this.others) holders += `,${request.holder}`;
    return [(mode === 'shared' ? 'r' : 'R') + this.claim, holders, wholeMs(this.keepFor)];
  }

  onReply(reply: unknown): void {
    this.onOutcome(reply === 1 ? 'released' : reply === 0 ? 'lost' : 'unknown');
  }

  onFailure(): void {
    this.onOutcome('unknown');
  }
}

/** What a waiter that has left still has to do: it was answered already, so nobody else would do it. */
export class Departure {
  readonly #until: number;
  #sent = false;

  constructor(
    private readonly waiter: DepartingWaiter,
    private readonly clock: Clock,
    private readonly servers: Pick<Servers, 'add' | 'isReachable'>,
    private readonly onDone: () => void,
  ) {
    this.#until = clock.now() + Math.max(waiter.request.lease, WAITERS_KEPT);
  }

  /** Sends it, unless it is in flight or its server cannot be reached: when it can be again, this is called again. */
  send(): void {
    if (this.#sent) return;
    if (this.clock.now() > this.#until) {
      this.onDone();
      return;
    }
    const { lock, request, claim } = this.waiter;
    if (!this.servers.isReachable(lock)) return;
    this.#sent = true;
    this.servers.add(
      new Release(lock, request, [], 0, claim, (outcome) => {
        this.#sent = false;
        if (outcome !== 'unknown') this.onDone();
      }),
    );
  }
}

/** The part of a waiter that its departure needs. */
export interface DepartingWaiter {
  readonly lock: string;
  readonly claim: string;
  readonly request: Holder & { readonly lease: number };
}

// The server removes waiters of a process that has not asked for this long, in ms.
const WAITERS_KEPT = 10_000;
