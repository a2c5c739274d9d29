import type { LimitShare } from '../../../api/lock-mode.js';
import { FREED, HELD, pieceStart, RETAINED } from './lease.js';
import { type HeldLease, type LeaseTable, type NewClaim, toMicroseconds } from './lease-table.js';

/**
 * Adds a value to a statement and returns its placeholder. Must be called in the order in which the placeholders appear
 * in the text.
 */
type Bind = (value: unknown) => string;

/** A holder to add. */
export interface NewHolder extends NewClaim {
  readonly limited: LimitShare;
}

// Limited because each removal nests the SQL one level deeper. Ended pieces still don't accumulate, as each claim adds
// only one.
const MOST_REMOVED = 50;

/**
 * The holders of limited leases: pieces of text in the key's row, in claim order.
 *
 * A renewal or release is a single statement that changes the end time in its own piece without comparing the version,
 * so other callers, however fast, can't make it fail. A freed piece never changes again, and an ended one is changed
 * only by a statement sent earlier.
 */
export class LimitedLeases {
  constructor(readonly leases: LeaseTable) {}

  /**
   * Acquires a lease for `duration` ms alongside the holders that were read. Resolves to its token, or to undefined if
   * another claim was faster. The ended pieces must be unchanged, so the number of counted holders can only have
   * decreased.
   */
  async claim(added: NewHolder, duration: number): Promise<bigint | undefined> {
    const { version, serverTime, pieces } = added.seen;
    const { positionOf } = this.leases.family;
    const time = BigInt(serverTime);
    const token = version >= time ? version + 1n : time;
    const isSame = (bind: Bind) => [
      `token = ${bind(version)}`,
      ...pieces
        .filter(({ hasEnded, isFreed }) => hasEnded && !isFreed)
        .map(({ text }) => `${positionOf}(holders, ${bind(text)}) > 0`),
    ];
    const isAdded = await this.#add(added, duration, (bind) => bind(token), isSame);
    return isAdded ? token : undefined;
  }

  /**
   * Adds a holder behind all others, whether or not there is room, so no other claim can make it fail. The caller must
   * then read the row to see whether there is room. Takes effect before `until` (server time) or not at all.
   */
  reserve(added: NewHolder, duration: number, until: number): Promise<boolean> {
    const { now } = this.leases.family;
    const isOpen = (bind: Bind) => [`${now} <= ${bind(until)}`];
    return this.#add(added, duration, () => this.leases.nextVersion, isOpen);
  }

  /**
   * Renews a hold to `duration` ms from now, or keeps a later end, as {@link LeaseTable.renew} does. Resolves to
   * whether it was still held. After a forced release, an unanswered reservation of the same holder may still take
   * effect, so the hold must have its token.
   */
  async renew({ name, holder, version }: HeldLease, duration: number): Promise<boolean> {
    if (await this.#change(name, holder, HELD, duration, version)) return true;
    // Without FOUND_ROWS, MySQL doesn't count a row that keeps its end.
    const seen = await this.leases.read(name);
    return seen?.holds.some((hold) => hold.holder === holder && hold.token === version) === true;
  }

  /** Ends a hold, or retains it for `keepFor` ms. Resolves to whether this holder held it. */
  release(name: string, holder: string, keepFor: number): Promise<boolean> {
    return this.#change(name, holder, RETAINED, keepFor);
  }

  /** Frees the position that got this token. A later position of the same holder has a larger token. */
  giveUp(name: string, holder: string, token: bigint): Promise<boolean> {
    return this.#change(name, holder, RETAINED, 0, token);
  }

  async #add(
    { name, seen, holder, limited }: NewHolder,
    duration: number,
    token: (bind: Bind) => string,
    conditions: (bind: Bind) => readonly string[],
  ): Promise<boolean> {
    const { name: table, family, run } = this.leases;
    const { now, positionOf, join, asText, changed } = family;
    const values: unknown[] = [];
    const bind: Bind = (value) => family.value(values.push(value));
    const ended = seen.pieces.filter(({ hasEnded }) => hasEnded).map(({ text }) => text);
    // Start with any ended piece left by this holder's earlier unanswered claim: renewals would find it first.
    const own = ended.filter((text) => text.startsWith(pieceStart(holder)));
    const without = (pieces: readonly string[]) =>
      pieces.reduce((text, piece) => `REPLACE(${text}, ${bind(piece)}, '')`, `COALESCE(holders, '')`);
    const end = () => `${now} + ${bind(toMicroseconds(duration))}`;
    // MySQL assigns from left to right, so `token` must be last.
    const holders = join(
      without([...own, ...ended].slice(0, MOST_REMOVED)),
      bind(pieceStart(holder) + HELD),
      asText(end()),
      bind(','),
      asText(token(bind)),
      bind(`,${limited.weight},${limited.limit}`),
    );
    // The row may have an exclusive lease, whose renewals don't change the token.
    const sql =
      `UPDATE ${table} SET holder = NULL, holders = ${holders}, ` +
      `expires = GREATEST(expires, ${end()}), token = ${token(bind)} ` +
      `WHERE name = ${bind(name)} AND (holders IS NOT NULL OR expires <= ${now}) ` +
      `AND ${conditions(bind).join(' AND ')} ` +
      `AND ${positionOf}(${without(own)}, ${bind(pieceStart(holder))}) = 0`;
    return changed(await run(sql, values)) === 1;
  }

  /** @param token the token that the piece must have. Default: any */
  async #change(name: string, holder: string, state: string, duration: number, token?: bigint): Promise<boolean> {
    const { name: table, family, run } = this.leases;
    const { now, positionOf, join, asText, changed } = family;
    const values: unknown[] = [];
    const bind: Bind = (value) => family.value(values.push(value));
    const start = pieceStart(holder) + HELD;
    const position = () => `${positionOf}(holders, ${bind(start)})`;
    const end = () => `${now} + ${bind(toMicroseconds(duration))}`;
    const part = (from: number, length: number) => `SUBSTR(holders, ${position()} + ${start.length + from}, ${length})`;
    const ownEnd = () => part(0, FREED.length);
    // Ends have equal lengths, so they compare as texts.
    const newEnd = () => (state === HELD ? `GREATEST(${ownEnd()}, ${asText(end())})` : asText(end()));
    const tokenText = `,${token},`;
    const holders = join(
      `SUBSTR(holders, 1, ${position()} - 1)`,
      bind(pieceStart(holder) + state),
      duration > 0 ? newEnd() : bind(FREED),
      `SUBSTR(holders, ${position()} + ${start.length + FREED.length})`,
    );
    const sql =
      `UPDATE ${table} SET holders = ${holders}${duration > 0 ? `, expires = GREATEST(expires, ${end()})` : ''} ` +
      `WHERE name = ${bind(name)} AND expires > ${now} AND ${position()} > 0 ` +
      `AND ${ownEnd()} > ${asText(now)}` +
      (token === undefined ? '' : ` AND ${part(FREED.length, tokenText.length)} = ${bind(tokenText)}`);
    return changed(await run(sql, values)) === 1;
  }
}
