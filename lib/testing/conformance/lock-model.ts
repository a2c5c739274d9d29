import assert from 'node:assert/strict';
import type { Grant } from '../../engine/lock-provider.js';
import type { LockMode } from '../../lock/lock-options.js';
import type { DirectCaller } from './direct-caller.js';
import { TooLate } from './expectations.js';
import type { SeededRandom } from './seeded-random.js';
import type { Stage } from './stage.js';

interface ModelHold {
  readonly caller: DirectCaller;
  readonly grant: Grant;
  /** When its lease is surely not over, and when it surely is; `Infinity` for one that outlives the run. */
  readonly safeUntil: number;
  readonly overAt: number;
}

const EXPIRY = 'expiry';
/** A part of a lease. Near its end nobody can say what is right. */
const UNCERTAIN = 0.3;

/** What a lock is, in twenty lines of rules, and a player who does at random what the rules allow and forbid. */
export class LockModel {
  readonly history: string[] = [];
  readonly #held = new Map<string, ModelHold[]>();
  readonly #gone: ModelHold[] = [];
  #lastToken = new Map<string, bigint>();
  #renewedAt = -Infinity;

  constructor(
    private readonly stage: Stage,
    private readonly callers: readonly [DirectCaller, ...DirectCaller[]],
    private readonly random: SeededRandom,
  ) {
    // Keys of its own: what a run leaves held disturbs no other.
    const run = Math.floor(random.fraction() * 2 ** 31);
    this.#held.set(`x:${run}`, []).set(`y:${run}`, []);
  }

  /** @throws TooLate when something was not as it should be after a step that took so long that leases may have ended */
  async step(): Promise<void> {
    const { clock, lease } = this.stage;
    const begun = clock.now();
    try {
      await this.#act();
    } catch (error) {
      const took = clock.now() - begun;
      if (took > lease * UNCERTAIN && this.history.at(-1) !== EXPIRY)
        throw new TooLate(`after ${took} ms: ${String(error)}`);
      throw error;
    }
  }

  async #act(): Promise<void> {
    await this.#outliveTheUncertain();
    await this.#keepSessions();
    const key = this.random.pick([...this.#held.keys()] as [string, ...string[]]);
    const holds = this.#held.get(key) ?? [];
    const chance = this.random.fraction();
    if (chance < 0.5) return this.#ask(key, holds);
    if (chance < 0.75) return this.#release(key, holds);
    if (chance < 0.85) return this.#renew(holds);
    if (chance < 0.97) return this.#actUnderADeadId();
    return this.#expire();
  }

  async #ask(key: string, holds: ModelHold[]): Promise<void> {
    const { capabilities, lease } = this.stage;
    const mode: LockMode = capabilities.shared ? this.random.pick(['exclusive', 'shared']) : 'exclusive';
    const isShort = capabilities.lease === 'per-lock' && this.random.fraction() < 0.3;
    const caller = this.random.pick(this.callers);
    this.history.push(`${isShort ? 'short ' : ''}${mode} ${key}`);
    const sentAt = this.stage.clock.now();
    const answer = await caller.ask(key, isShort ? { mode, lease } : { mode });
    const isAdmitted = holds.every(({ grant }) => grant.mode === 'shared' && mode === 'shared');
    assert.equal(answer === 'busy' ? 'busy' : 'granted', isAdmitted ? 'granted' : 'busy');
    if (answer === 'busy') return;
    this.#checkToken(answer, holds);
    const now = this.stage.clock.now();
    holds.push({
      caller,
      grant: answer,
      safeUntil: isShort ? sentAt + lease * (0.9 - UNCERTAIN) : Infinity,
      overAt: isShort ? now + lease + this.stage.time.slack / 2 : Infinity,
    });
  }

  async #release(key: string, holds: ModelHold[]): Promise<void> {
    const [hold] = holds.splice(Math.floor(this.random.fraction() * holds.length), 1);
    if (!hold) return;
    this.history.push(`release ${hold.grant.mode} ${key}`);
    this.#gone.push(hold);
    assert.equal(await hold.caller.release(hold.grant), 'released');
  }

  async #renew(holds: readonly ModelHold[]): Promise<void> {
    const [hold] = holds;
    // A renewal would move the end of a short lease.
    if (hold?.overAt !== Infinity) return;
    this.history.push(`renew ${hold.grant.mode} ${hold.grant.key}`);
    await hold.caller.assertRenewable(hold.grant);
  }

  async #actUnderADeadId(): Promise<void> {
    const hold = this.#gone.at(Math.floor(this.random.fraction() * this.#gone.length));
    if (!hold) return;
    const act = this.random.pick(['release', 'renew']);
    this.history.push(`late ${act} ${hold.grant.key}`);
    const outcome = act === 'release' ? await hold.caller.release(hold.grant) : await hold.caller.renew(hold.grant);
    assert.equal(outcome, 'lost');
  }

  async #expire(): Promise<void> {
    const ends = [...this.#held.values()].flat().map(({ overAt }) => overAt);
    const end = Math.max(0, ...ends.filter((time) => time !== Infinity));
    if (end === 0) return;
    this.history.push(EXPIRY);
    await this.stage.sleep(Math.max(0, end + this.stage.bounds.expiry - this.stage.clock.now()));
    for (const holds of this.#held.values()) {
      const over = holds.filter(({ overAt }) => overAt !== Infinity);
      this.#gone.push(...over);
      holds.splice(0, holds.length, ...holds.filter(({ overAt }) => overAt === Infinity));
    }
  }

  async #outliveTheUncertain(): Promise<void> {
    const now = this.stage.clock.now();
    if ([...this.#held.values()].flat().some(({ safeUntil }) => safeUntil <= now)) await this.#expire();
  }

  /** A lock that lives with a session has no lease that could be longer than the run, and nobody here who renews it. */
  async #keepSessions(): Promise<void> {
    const { capabilities, clock, lease } = this.stage;
    if (capabilities.lease !== 'session' || clock.now() - this.#renewedAt < lease / 3) return;
    this.#renewedAt = clock.now();
    const held = [...this.#held.values()].flat();
    await Promise.all(held.map(({ caller, grant }) => caller.assertRenewable(grant)));
  }

  #checkToken(grant: Grant, holds: readonly ModelHold[]): void {
    if (grant.fencingToken === null) return;
    const last = this.#lastToken.get(grant.key) ?? 0n;
    const shared = holds.length > 0;
    assert.ok(
      shared ? grant.fencingToken >= last : grant.fencingToken > last,
      `token ${grant.fencingToken} after ${last}`,
    );
    this.#lastToken.set(grant.key, grant.fencingToken);
  }
}
