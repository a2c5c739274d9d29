import type {
  AcquireRequest,
  BackendContext,
  Grant,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../api/lock-provider.js';
import { withAbort } from '../../../core/toolkit/abort-listeners.js';
import type { SeenHolders } from '../../shared/seen-holders.js';
import { backOff, pause } from '../../../core/toolkit/timing.js';
import { entryLabelOf, entryNameOf } from '../table/lock-name.js';
import type { Database, SqlRequest } from '../sql-backend.js';
import { holderIn, type Lease } from './lease.js';
import { LeaseClaim, remainingOf } from './lease-claim.js';
import type { LeaseTable } from './lease-table.js';
import type { LimitedLeases } from './limited-leases.js';

// The delay between reads of a busy row. Each read is one index lookup.
const PAUSE = { first: 10, most: 200 };
// How long before a wait ends the last read is made, in ms.
const LAST_LOOK = 50;
// How many times an attempt that doesn't wait may lose to other claims.
const MOST_LOST = 5;

/** A connected database with leases. */
export interface LeaseDatabase extends Database {
  readonly leases: LeaseTable;
  readonly limited: LimitedLeases;
}

/** A snapshot of a row. */
interface Look {
  readonly seen: Lease | undefined;
  /** When the read was sent. */
  readonly readAt: number;
}

/**
 * One attempt to hold one lease, from the first read to the release. Decides when to read, wait, and end; its
 * `LeaseClaim` sends the statements.
 */
export class VersionRequest implements SqlRequest {
  #released = false;
  /**
   * Whether the caller has left. `request.wait` doesn't show that: it is 0 by then, as it is for an attempt that never
   * waits.
   */
  #hasLeft = false;
  /** When the still-unanswered read or claim was sent. */
  #sentAt: number | undefined;
  /** The outcome of the latest `acquire` call. */
  #answer: Promise<Grant | 'busy' | 'not-asked'> | undefined;
  /** Called when the attempt starts to wait. */
  #onWait: (() => void) | undefined;
  readonly #name: string;
  readonly #claim: LeaseClaim;

  constructor(
    private readonly context: BackendContext,
    private readonly database: LeaseDatabase,
    private readonly request: AcquireRequest,
    private readonly holders: SeenHolders,
  ) {
    const { leases, limited } = database;
    this.#name = entryNameOf(context.namespace, 'lease', request.key);
    this.#claim = new LeaseClaim(context.clock, leases, limited, this.#name, request);
  }

  get unansweredFor(): number {
    return this.#sentAt === undefined ? 0 : this.context.clock.now() - this.#sentAt;
  }

  renew(lease: number): Promise<RenewOutcome> {
    return this.#claim.renew(lease);
  }

  /** Tries until `request.wait` ends. A repeated call finds any hold an unanswered one acquired. */
  acquire(): Promise<Grant | 'busy' | 'not-asked'> {
    const { after } = this.request;
    this.#answer =
      after === undefined ? this.#claimWhenFree() : this.#claimAfter(after.state as VersionRequest | undefined);
    return this.#answer;
  }

  /**
   * Reads at once, in a statement shared with the chain's other requests, and claims once the previous request is
   * granted. Claims in a shared statement could block on each other's rows.
   */
  async #claimAfter(before: VersionRequest | undefined): Promise<Grant | 'busy' | 'not-asked'> {
    const readAt = this.context.clock.now();
    const early = this.database.leases.read(this.#name).then(
      (seen) => ({ seen, readAt }),
      // A failed read is repeated later.
      () => undefined,
    );
    const isAsked = (await before?.isGranted()) === true && !this.#isReleased();
    return isAsked ? this.#claimWhenFree(await early) : 'not-asked';
  }

  /** Resolves to whether the request is granted without waiting. Called by the next request in the chain. */
  isGranted(): Promise<boolean> {
    const waits = new Promise<boolean>((resolve) => {
      this.#onWait = () => {
        resolve(false);
      };
    });
    const isGrant = (answer: Grant | string) => typeof answer === 'object';
    return Promise.race([waits, this.#answer?.then(isGrant, () => false) ?? waits]);
  }

  /**
   * Ends the attempt, whatever its state. Sends a release only if there is a claim. Otherwise, each caller during an
   * outage would leave behind a statement that is retried for a lease's duration.
   */
  async release({ keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    this.#released = true;
    if (!this.#claim.sent) return 'lost';
    return (await this.#claim.release(keepFor)) ? 'released' : 'lost';
  }

  /** @param early a read made before this request's turn */
  async #claimWhenFree(early?: Look): Promise<Grant | 'busy'> {
    const answer = await this.#claimIfFree(early);
    if (typeof answer !== 'number') return answer;
    if (this.request.wait <= 0) return this.#endWithoutClaim();
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#hasLeft = true;
        // The row was busy when last read, but a claim in flight may still be granted, so wait for its outcome.
        if (!this.#claim.sent) resolve('busy');
      };
      // Read the signal only when waiting, because the first read creates it. Before that, a release ends the attempt,
      // and a lock granted to a caller that has left is released.
      withAbort(this.request.signal, leave, () => this.#wait(answer)).then(resolve, reject);
    });
  }

  /** @param endsIn when the first of the current holds ends, in ms from now */
  async #wait(endsIn: number): Promise<Grant | 'busy'> {
    const { request } = this;
    const { clock, random } = this.context;
    const waitUntil = clock.now() + request.wait;
    for (let round = 0, left = endsIn; ; round += 1) {
      this.#sentAt = undefined;
      this.#onWait?.();
      if (round === 0) request.waits();
      const lastLook = waitUntil - LAST_LOOK - clock.now();
      const delay = Math.min(backOff(random, round, PAUSE), left, lastLook > 0 ? lastLook : Infinity);
      await pause(clock, Math.max(1, delay), request.signal);
      if (this.#hasEnded()) return this.#endWithoutClaim();
      const answer = await this.#claimIfFree();
      if (typeof answer !== 'number') return answer;
      if (request.wait <= 0) return this.#endWithoutClaim();
      left = answer;
    }
  }

  /**
   * Reads the row, and claims it if it is free. If it is held, resolves to the number of ms until the first hold ends.
   */
  async #claimIfFree(early?: Look): Promise<Grant | 'busy' | number> {
    const { request } = this;
    const { clock } = this.context;
    const { leases } = this.database;
    const claim = this.#claim;
    for (let lost = 0, look = early; ; look = undefined) {
      this.#sentAt = clock.now();
      const readAt = look?.readAt ?? this.#sentAt;
      const seen = look ? look.seen : await leases.read(this.#name);
      if (this.#isReleased()) break;
      const found = await claim.find(seen, readAt);
      // The next read will show why it is gone.
      if (found === 'gone') continue;
      if (found) return found;
      if (this.#hasEnded()) break;
      if (!seen) {
        await leases.createRow(this.#name, entryLabelOf(request.key));
        continue;
      }
      if (!claim.fits(seen)) {
        // The row may have become free since that early read.
        if (look) continue;
        this.holders.saw(request, holderIn(seen), readAt);
        return Math.min(...seen.holds.map((hold) => remainingOf(seen, hold)));
      }
      const granted = await claim.claim(seen);
      // A release sent in the meantime voids the claim, or frees what it acquired.
      if (this.#isReleased()) break;
      if (granted) return granted;
      lost += 1;
      // Otherwise, the next read shows how long the faster claim lasts, or whether there is room for a reserved
      // position.
      if (request.wait <= 0 && lost >= MOST_LOST && !claim.sent) break;
    }
    return this.#endWithoutClaim();
  }

  /**
   * @throws Error if an earlier claim may still be granted. This case doesn't count as busy, so the core releases the
   * request
   */
  #endWithoutClaim(): 'busy' {
    if (!this.#claim.sent || this.#released) return 'busy';
    throw new Error('A statement got no response and may still acquire the lock.');
  }

  // These are methods because TypeScript would otherwise assume that state can't change during an await.
  #isReleased(): boolean {
    return this.#released;
  }

  #hasEnded(): boolean {
    return this.#released || this.#hasLeft;
  }
}
