import type { LimitShare } from '../../../api/lock-mode.js';
import { FREED, HELD, type Lease, pieceStart, RETAINED } from './lease.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';

/** Adds a value to those of a statement. They are counted where they occur in its text. */
type Bind = (value: unknown) => string;

/** A holder that is to be added, and the row as it has seen it. */
export interface NewHolder {
  readonly name: string;
  readonly seen: Lease;
  readonly holder: string;
  readonly limited: LimitShare;
}

// Each piece that is removed nests the expression once more. A claim adds one piece, so they do not accumulate.
const MOST_REMOVED = 50;

/**
 * The holders of limited leases: pieces of text in the row of the key, in the order of their claims.
 *
 * A renewal or release is one statement, which changes the end in its own piece and compares no version. So other callers, however fast,
 * do not make it fail. A piece that was freed never changes again, and one that has ended only by a statement that was sent before.
 */
export class LimitedLeases {
  constructor(readonly leases: LeaseTable) {}

  /**
   * Takes a lease for `duration` ms beside the holders that were seen. Answers its token, or undefined when another claim was faster. The pieces
   * that had ended must be the same still: so those that it counted can only have become fewer.
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
   * Adds a holder behind all others, whether there is room for it or not, so no other claim makes it fail. Its caller then has to look at those
   * before it. Executed until this time of the server, or never.
   */
  reserve(added: NewHolder, duration: number, until: number): Promise<boolean> {
    const { now } = this.leases.family;
    const isOpen = (bind: Bind) => [`${now} <= ${bind(until)}`, `(holders IS NOT NULL OR expires <= ${now})`];
    return this.#add(added, duration, () => this.leases.nextVersion, isOpen);
  }

  /** Renews a hold to `duration` ms from now. Answers whether it had not ended. */
  renew(name: string, holder: string, duration: number): Promise<boolean> {
    return this.#change(name, holder, HELD, duration);
  }

  /** Ends a hold, or retains it for `keepFor` ms. Answers whether this holder had it. */
  release(name: string, holder: string, keepFor: number): Promise<boolean> {
    return this.#change(name, holder, RETAINED, keepFor);
  }

  async #add(
    { name, seen, holder, limited }: NewHolder,
    duration: number,
    token: (bind: Bind) => string,
    conditions: (bind: Bind) => readonly string[],
  ): Promise<boolean> {
    const { name: table, family, run } = this.leases;
    const { now, positionOf, join, asText, greatest, changed } = family;
    const values: unknown[] = [];
    const bind: Bind = (value) => family.value(values.push(value));
    const ended = seen.pieces.filter(({ hasEnded }) => hasEnded).map(({ text }) => text);
    // Of an earlier claim of its own that was not answered, and has ended: renewals look for the first piece.
    const own = ended.filter((text) => text.startsWith(pieceStart(holder)));
    const without = (pieces: readonly string[]) =>
      pieces.reduce((text, piece) => `REPLACE(${text}, ${bind(piece)}, '')`, `COALESCE(holders, '')`);
    const end = () => `${now} + ${bind(toMicroseconds(duration))}`;
    // MySQL assigns from left to right, so `token` comes last.
    const holders = join(
      without([...own, ...ended].slice(0, MOST_REMOVED)),
      bind(pieceStart(holder) + HELD),
      asText(end()),
      bind(','),
      asText(token(bind)),
      bind(`,${limited.weight},${limited.limit}`),
    );
    const sql =
      `UPDATE ${table} SET holder = NULL, holders = ${holders}, ` +
      `expires = ${greatest}(expires, ${end()}), token = ${token(bind)} ` +
      `WHERE name = ${bind(name)} AND ${conditions(bind).join(' AND ')} ` +
      `AND ${positionOf}(${without(own)}, ${bind(pieceStart(holder))}) = 0`;
    return changed(await run(sql, values)) === 1;
  }

  async #change(name: string, holder: string, state: string, duration: number): Promise<boolean> {
    const { name: table, family, run } = this.leases;
    const { now, positionOf, join, asText, greatest, changed } = family;
    const values: unknown[] = [];
    const bind: Bind = (value) => family.value(values.push(value));
    const start = pieceStart(holder) + HELD;
    const position = () => `${positionOf}(holders, ${bind(start)})`;
    const end = () => `${now} + ${bind(toMicroseconds(duration))}`;
    const holders = join(
      `SUBSTR(holders, 1, ${position()} - 1)`,
      bind(pieceStart(holder) + state),
      duration > 0 ? asText(end()) : bind(FREED),
      `SUBSTR(holders, ${position()} + ${start.length + FREED.length})`,
    );
    const sql =
      `UPDATE ${table} SET holders = ${holders}${duration > 0 ? `, expires = ${greatest}(expires, ${end()})` : ''} ` +
      `WHERE name = ${bind(name)} AND expires > ${now} AND ${position()} > 0 ` +
      `AND SUBSTR(holders, ${position()} + ${start.length}, ${FREED.length}) > ${asText(now)}`;
    return changed(await run(sql, values)) === 1;
  }
}
