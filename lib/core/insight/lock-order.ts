import { LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LockLogger } from '../../api/logger.js';
import { familyOf, nameOf, placeOf } from '../events/subject.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import { WarnedPlaces } from '../toolkit/warned-places.js';

/** A call that requested a lock while it held another one. */
interface Nesting {
  readonly held: LockEvent;
  readonly wanted: LockEvent;
  /**
   * Whether the requested key sorts before the held one. Callers that request keys in ascending order cannot deadlock.
   */
  readonly descends: boolean;
}

// Limits memory use: the part of a key before the first `:` may be a value, such as a tenant.
const MAX_PAIRS = 5_000;

/**
 * Tracks the order in which an application's calls nest each pair of lock names. Logs a warning once both orders of a
 * pair have been seen, before they lead to a deadlock. Cycles of three or more names are found only once callers are
 * waiting in one: see `DeadlockWatch`.
 */
export class LockOrder {
  readonly #names = new LockNames();
  /** Keyed by the names of the outer and inner locks, then by their modes. */
  readonly #pairs = new Map<string, Map<number, Nesting>>();
  readonly #warnedOf = new WarnedPlaces();
  #refuses = false;

  constructor(private readonly logger: LockLogger) {}

  /**
   * For tests: makes a call in the opposite order fail instead of logging a warning. The nesting is not recorded, so
   * the next such call fails too.
   */
  refuseOppositeOrders(): void {
    this.#refuses = true;
  }

  /**
   * Records that a call requests a lock while holding the `outer` locks.
   *
   * @throws LockDeadlockError after {@link refuseOppositeOrders}, if another call nested the locks in the opposite
   * order
   */
  under(outer: readonly GrantedLock[], wanted: LockEvent): void {
    const inner = this.#nameOf(wanted);
    for (const { holds } of outer) {
      let after: string | undefined;
      // Sorted. For keys with the same name, it's enough to check the largest: a request that sorts before any of them
      // sorts before the largest.
      for (let index = holds.length - 1; index >= 0; index -= 1) {
        const held = holds[index]?.subject;
        if (!held || isSame(held, wanted)) continue;
        const name = this.#nameOf(held);
        if (name !== after) this.#add(name, held, inner, wanted);
        after = name;
      }
    }
  }

  /**
   * Records that a call requests several keys in sorted order, each while it holds the previous ones. Such calls cannot
   * deadlock with each other, but one can deadlock with a call that nests two of the keys in the opposite order.
   *
   * @throws LockDeadlockError, as {@link under} does
   */
  together(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[]): void {
    const before = new Map<string, LockEvent>();
    for (const key of keys) {
      // A call never waits for a key that it re-enters.
      if (outer.some((lock) => lock.provider === plan.core.name && lock.keys.includes(key))) continue;
      const wanted = subjectOf(key, plan);
      const inner = this.#nameOf(wanted);
      for (const [name, held] of before) if (name !== inner) this.#add(name, held, inner, wanted);
      before.set(inner, wanted);
    }
  }

  #nameOf(lock: LockEvent): string {
    return `${lock.provider}:${this.#names.of(lock)}`;
  }

  #add(outer: string, held: LockEvent, inner: string, wanted: LockEvent): void {
    const descends = isBelow(wanted, held);
    // We recommend ascending order for keys with the same name.
    if (outer === inner && !descends) return;
    // Count readers separately, because they don't block each other.
    const modes = (held.mode === 'shared' ? 2 : 0) + (wanted.mode === 'shared' ? 1 : 0);
    const pair = `${outer}\n${inner}`;
    const nestings = this.#pairs.get(pair);
    const known = nestings?.get(modes);
    if (known && (known.descends || !descends)) return;
    const nesting: Nesting = { held, wanted, descends };
    const opposites = outer === inner ? [nesting] : (this.#pairs.get(`${inner}\n${outer}`)?.values() ?? []);
    const opposite = Array.from(opposites).find((other) => mayDeadlock(nesting, other));
    if (opposite) this.#report([outer, inner].sort().join('\n'), nesting, opposite === nesting ? undefined : opposite);
    if (nestings) nestings.set(modes, nesting);
    else if (this.#pairs.size < MAX_PAIRS) this.#pairs.set(pair, new Map([[modes, nesting]]));
  }

  #report(names: string, nesting: Nesting, other: Nesting | undefined): void {
    const message = messageOf(nesting, other);
    if (this.#refuses) throw new LockDeadlockError(message, nesting.wanted);
    if (this.#warnedOf.add(names)) this.logger.warn(`${message} (Warned once per pair.)`);
  }
}

/**
 * The names of locks. A template's name is its text without values or trailing separators, such as `order` for
 * `order:#{order.id}`. A key without a template is named after the part before its first `:`, so `order:42` has the
 * same name.
 */
class LockNames {
  readonly #ofTemplates = new Map<string, readonly { readonly head: string; readonly name: string }[]>();

  of({ key, template, method }: Pick<LockEvent, 'key' | 'template' | 'method'>): string {
    if (template === null) return familyOf(key);
    const names = this.#namesOf(template, method ?? '');
    let found = names[0];
    // If the method has several templates, choose the one that produced the key.
    if (names.length > 1) {
      for (const each of names) {
        if (
          key.startsWith(each.head) &&
          !(found && key.startsWith(found.head) && found.head.length >= each.head.length)
        )
          found = each;
      }
    }
    return found?.name ?? template;
  }

  #namesOf(template: string, method: string) {
    const source = `${method} ${template}`;
    let names = this.#ofTemplates.get(source);
    if (!names) {
      const [className = '', methodName = ''] = method.split('.');
      const fixed = template.replaceAll('#{class}', className).replaceAll('#{method}', methodName);
      names = fixed.split(', ').map((each) => ({
        head: each.split('#{')[0] ?? '',
        name: each.replace(/#\{[^}]*\}/g, '').replace(/[:/]+$/, '') || each,
      }));
      this.#ofTemplates.set(source, names);
    }
    return names;
  }
}

function isSame(one: LockEvent, other: LockEvent): boolean {
  return one.key === other.key && one.provider === other.provider;
}

/** Compares by provider, then by key. All providers' keys share this order. */
function isBelow(one: LockEvent, other: LockEvent): boolean {
  return one.provider === other.provider ? one.key < other.key : one.provider < other.provider;
}

/**
 * Whether two callers with these nestings can deadlock: at least one nesting must descend, and the callers must exclude
 * each other at both locks.
 */
function mayDeadlock(one: Nesting, other: Nesting): boolean {
  return (one.descends || other.descends) && excludes(one, other) && excludes(other, one);
}

function excludes({ wanted }: Nesting, { held }: Nesting): boolean {
  return wanted.mode !== 'shared' || held.mode !== 'shared';
}

function messageOf({ held, wanted }: Nesting, other: Nesting | undefined): string {
  if (!other) {
    return (
      `${nameOf(wanted)} is acquired under ${placeOf(held)}, which sorts after it: two callers that nest them in opposite orders can deadlock. ` +
      'Acquire keys in sorted order, or all at once as an array.'
    );
  }
  const place = (lock: LockEvent) =>
    lock.provider === wanted.provider ? placeOf(lock) : `${placeOf(lock)} (provider "${lock.provider}")`;
  return (
    `${nameOf(wanted)} is acquired under ${place(held)}, and elsewhere ${place(other.wanted)} under ${place(other.held)}. ` +
    'Callers that do so at the same time deadlock until a "wait" times out. ' +
    'Acquire these locks in the same order everywhere, or all at once with an array of keys.'
  );
}
