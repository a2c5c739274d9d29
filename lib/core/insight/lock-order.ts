import { LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LockLogger } from '../../api/logger.js';
import { familyOf, nameOf, placeOf } from '../events/subject.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import { WarnedPlaces } from '../toolkit/warned-places.js';

/** A call wanted a lock, and waited for it, while it held another one. */
interface Nesting {
  readonly held: LockEvent;
  readonly wanted: LockEvent;
  /** Whether a key was ever wanted under a larger one. Callers that all go up never wait for each other. */
  readonly descends: boolean;
}

// The text before the first `:` may be a value, such as a tenant, of which there may be any number.
const MOST_PAIRS = 5_000;

/**
 * The orders in which the calls of one application nest locks, by pairs of names: it warns when both orders of a pair were seen, before
 * callers wait for each other. A cycle of three names or more is found when callers wait in it: see `DeadlockWatch`.
 */
export class LockOrder {
  readonly #names = new LockNames();
  /** By the names of the outer and of the inner lock; in it, by their modes. */
  readonly #pairs = new Map<string, Map<number, Nesting>>();
  readonly #warnedOf = new WarnedPlaces();
  #refuses = false;

  constructor(private readonly logger: LockLogger) {}

  /** For tests: a call that nests the opposite way fails, instead of a warning. It is not kept, so the next such call fails as well. */
  refuseOppositeOrders(): void {
    this.#refuses = true;
  }

  /**
   * A call will wait for a lock under these locks.
   *
   * @throws LockDeadlockError if another call has nested them the other way round, where that is refused
   */
  under(outer: readonly GrantedLock[], wanted: LockEvent): void {
    const inner = this.#nameOf(wanted);
    for (const { holds } of outer) {
      let after: string | undefined;
      // They are sorted. Of those with one name the largest is enough, because below it any key goes down.
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
   * A call will wait for each of several keys, in sorted order, while it holds those before. Such calls never wait for each other, but one may
   * wait for a call that nests two of these keys the other way round.
   *
   * @throws LockDeadlockError as {@link under}
   */
  together(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[]): void {
    const before = new Map<string, LockEvent>();
    for (const key of keys) {
      // A key that is entered again is not waited for.
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
    // Keys of one name that go up are in the order that is advised.
    if (outer === inner && !descends) return;
    // Readers are a kind of their own: what they hold, they hold together.
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
    else if (this.#pairs.size < MOST_PAIRS) this.#pairs.set(pair, new Map([[modes, nesting]]));
  }

  #report(names: string, nesting: Nesting, other: Nesting | undefined): void {
    const message = messageOf(nesting, other);
    if (this.#refuses) throw new LockDeadlockError(message, nesting.wanted);
    if (this.#warnedOf.add(names)) this.logger.warn(`${message} (Warned once for each pair.)`);
  }
}

/**
 * The names of locks. A template's name is its text without values, and without separators at the end: `order` for `order:#{order.id}`,
 * which is also the name of the key `order:42` of a call without a template, the text before its first `:`.
 */
class LockNames {
  readonly #ofTemplates = new Map<string, readonly { readonly head: string; readonly name: string }[]>();

  of({ key, template, method }: Pick<LockEvent, 'key' | 'template' | 'method'>): string {
    if (template === null) return familyOf(key);
    const names = this.#namesOf(template, method ?? '');
    let found = names[0];
    // Of several templates, the one that has made the key.
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

/** In the one order of all keys of all providers. */
function isBelow(one: LockEvent, other: LockEvent): boolean {
  return one.provider === other.provider ? one.key < other.key : one.provider < other.provider;
}

/** Whether two callers that nest so may wait for each other: one goes down, and they meet at both locks as more than readers. */
function mayDeadlock(one: Nesting, other: Nesting): boolean {
  return (one.descends || other.descends) && excludes(one, other) && excludes(other, one);
}

function excludes({ wanted }: Nesting, { held }: Nesting): boolean {
  return wanted.mode !== 'shared' || held.mode !== 'shared';
}

function messageOf({ held, wanted }: Nesting, other: Nesting | undefined): string {
  if (!other) {
    return (
      `${nameOf(wanted)} is acquired under ${placeOf(held)}, which sorts after it: two callers that nest in opposite order wait for each other. ` +
      'Acquire keys in sorted order, or all of them in one call by their array.'
    );
  }
  const place = (lock: LockEvent) =>
    lock.provider === wanted.provider ? placeOf(lock) : `${placeOf(lock)} (provider "${lock.provider}")`;
  return (
    `${nameOf(wanted)} is acquired under ${place(held)}, and elsewhere ${place(other.wanted)} under ${place(other.held)}. ` +
    'Callers that do so at the same time wait for each other until a "wait" ends. ' +
    'Acquire these locks in one order everywhere, or all of them in one call with an array of keys.'
  );
}
