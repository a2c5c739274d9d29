import assert from 'node:assert/strict';
import type { LimitShare, LockMode } from '../api/lock-mode.js';
import type { DirectCaller, DirectGrant } from './direct-caller.js';
import type { SeededRandom } from './seeded-random.js';
import type { Stage } from './stage.js';

/** How a key is requested. */
interface Kind {
  readonly mode: LockMode;
  readonly limited?: LimitShare;
}

interface ModelHold {
  readonly kind: Kind;
  readonly caller: DirectCaller;
  readonly grant: DirectGrant;
  /**
   * The latest time at which the lease can't have ended, and the earliest at which it must have ended. `Infinity` for a
   * lease that outlives the run.
   */
  readonly safeUntil: number;
  readonly overAt: number;
}

/** A fraction of a lease. Near a lease's end, any outcome is fine. */
const UNCERTAIN = 0.3;

/** A lock's rules in twenty lines, and a player that randomly tries both permitted and forbidden operations. */
export class LockModel {
  readonly history: string[] = [];
  readonly #held = new Map<string, ModelHold[]>();
  readonly #gone: ModelHold[] = [];
  readonly #lastToken = new Map<string, bigint>();
  #renewedAt = -Infinity;

  constructor(
    private readonly stage: Stage,
    private readonly callers: readonly [DirectCaller, ...DirectCaller[]],
    private readonly random: SeededRandom,
  ) {
    // Each run has its own keys, so locks that it leaves held don't affect other runs.
    const run = Math.floor(random.fraction() * 2 ** 31);
    this.#held.set(`x:${run}`, []).set(`y:${run}`, []);
  }

  async step(): Promise<void> {
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
    const kind = this.#anyKind();
    const isShort = capabilities.lease === 'per-lock' && this.random.fraction() < 0.3;
    const caller = this.random.pick(this.callers);
    this.history.push(`${isShort ? 'short ' : ''}${kind.mode} ${JSON.stringify(kind.limited ?? '')} ${key}`);
    const sentAt = this.stage.clock.now();
    const answer = await caller.ask(key, isShort ? { ...kind, lease } : kind);
    const now = this.stage.clock.now();
    // The response may be late, so only leases that certainly hadn't expired when it arrived matter.
    const isCertain = ({ safeUntil }: ModelHold) => safeUntil > now;
    if (answer === 'busy') {
      assert.ok(!admits(holds, kind), `"${key}" should be granted`);
      return;
    }
    assert.ok(admits(holds.filter(isCertain), kind), `"${key}" should be busy`);
    if (!admits(holds, kind)) this.#markGone(holds.filter((hold) => !isCertain(hold)));
    this.#checkToken(answer, holds);
    holds.push({
      kind,
      caller,
      grant: answer,
      safeUntil: isShort ? sentAt + lease * (0.9 - UNCERTAIN) : Infinity,
      overAt: isShort ? now + lease + this.stage.time.pause / 2 : Infinity,
    });
  }

  #anyKind(): Kind {
    const { shared, limits = false } = this.stage.capabilities;
    const kinds: [LockMode, ...LockMode[]] = ['exclusive'];
    if (shared) kinds.push('shared');
    if (limits) kinds.push('limited', 'limited');
    const mode = this.random.pick(kinds);
    if (mode !== 'limited') return { mode };
    return { mode, limited: { limit: this.random.pick([2, 3]), weight: this.random.pick([1, 2]) } };
  }

  async #release(key: string, holds: ModelHold[]): Promise<void> {
    const hold = holds[Math.floor(this.random.fraction() * holds.length)];
    if (!hold) return;
    this.history.push(`release ${hold.grant.request.mode} ${key}`);
    this.#markGone([hold]);
    const outcome = await hold.caller.release(hold.grant);
    if (hold.safeUntil > this.stage.clock.now()) assert.equal(outcome, 'released');
  }

  async #renew(holds: readonly ModelHold[]): Promise<void> {
    const [hold] = holds;
    // A renewal would postpone a short lease's end.
    if (hold?.overAt !== Infinity) return;
    this.history.push(`renew ${hold.grant.request.mode} ${hold.grant.request.key}`);
    await hold.caller.assertRenewable(hold.grant);
  }

  async #actUnderADeadId(): Promise<void> {
    const hold = this.#gone.at(Math.floor(this.random.fraction() * this.#gone.length));
    if (!hold) return;
    const act = this.random.pick(['release', 'renew']);
    this.history.push(`late ${act} ${hold.grant.request.key}`);
    const outcome = act === 'release' ? await hold.caller.release(hold.grant) : await hold.caller.renew(hold.grant);
    assert.equal(outcome, 'lost');
  }

  async #expire(): Promise<void> {
    const ending = [...this.#held.values()].flat().filter(({ overAt }) => overAt !== Infinity);
    if (ending.length === 0) return;
    this.history.push('expiry');
    const end = Math.max(...ending.map(({ overAt }) => overAt));
    await this.stage.sleep(Math.max(0, end + this.stage.bounds.expiry - this.stage.clock.now()));
    this.#markGone(ending);
  }

  #markGone(holds: readonly ModelHold[]): void {
    this.#gone.push(...holds);
    for (const held of this.#held.values())
      held.splice(0, held.length, ...held.filter((hold) => !holds.includes(hold)));
  }

  async #outliveTheUncertain(): Promise<void> {
    const now = this.stage.clock.now();
    if ([...this.#held.values()].flat().some(({ safeUntil }) => safeUntil <= now)) await this.#expire();
  }

  /** A lock tied to a session has no lease that could outlast the run, and nothing here renews it. */
  async #keepSessions(): Promise<void> {
    const { capabilities, clock, lease } = this.stage;
    if (capabilities.lease !== 'session' || clock.now() - this.#renewedAt < lease / 3) return;
    this.#renewedAt = clock.now();
    const held = [...this.#held.values()].flat();
    await Promise.all(held.map(({ caller, grant }) => caller.assertRenewable(grant)));
  }

  #checkToken(grant: DirectGrant, holds: readonly ModelHold[]): void {
    if (grant.fencingToken === null) return;
    const last = this.#lastToken.get(grant.request.key) ?? 0n;
    const shared = grant.request.mode === 'shared' && holds.length > 0;
    assert.ok(
      shared ? grant.fencingToken >= last : grant.fencingToken > last,
      `token ${grant.fencingToken} after ${last}`,
    );
    this.#lastToken.set(grant.request.key, grant.fencingToken);
  }
}

/** Whether a key can be granted alongside these holds. */
function admits(holds: readonly ModelHold[], { mode, limited }: Kind): boolean {
  if (holds.length === 0) return true;
  if (mode === 'exclusive' || holds.some(({ kind }) => kind.mode !== mode)) return false;
  if (!limited) return true;
  const all = [limited, ...holds.flatMap(({ kind }) => kind.limited ?? [])];
  return all.reduce((sum, { weight }) => sum + weight, 0) <= Math.min(...all.map(({ limit }) => limit));
}
