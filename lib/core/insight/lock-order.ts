import { LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LockLogger } from '../../api/logger.js';
import { familyOf, nameOf, placeOf } from '../events/subject.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import { type LockPlan, subjectOf } from '../acquire/lock-plan.js';

/** The locks of one provider that have one name: see {@link LockNames}. */
interface Node {
  readonly id: number;
  /** The locks that were wanted under these, by the other node and the modes. */
  readonly edges: Map<number, Edge>;
}

/** A call wanted a lock of `inner`, and waited for it, while it held one of `outer`. */
interface Edge {
  readonly outer: Node;
  readonly inner: Node;
  /** The locks of the call that made the edge what it is. */
  readonly held: LockEvent;
  readonly wanted: LockEvent;
  /** Whether a key was ever wanted under a larger one. Callers that all go up never wait for each other in a circle. */
  readonly descends: boolean;
  /** Further keys that each caller of this edge held exclusively, so that two of them are never here together. */
  readonly gates: readonly string[];
}

/** A path along edges, on the search for a circle. */
interface Path {
  readonly edge: Edge;
  readonly before: Path | undefined;
  readonly descends: boolean;
  /** The gates that all its edges have. */
  readonly gates: readonly string[];
}

// The text before the first `:` may be a value, such as a tenant, of which there may be any number.
const MOST_NODES = 500;
const MOST_EDGES = 5_000;
const MOST_GATES = 8;
const MOST_WARNINGS = 100;

/**
 * The orders in which the calls of one application nest locks: a graph with an edge for "acquired under". With the last edge of a circle, such as
 * A under B where another place has B under A, it warns before callers wait for each other in it.
 */
export class LockOrder {
  readonly #names = new LockNames();
  readonly #nodes = new Map<string, Node>();
  readonly #warnedOf = new Set<string>();
  #edges = 0;
  #refusesCircles = false;

  constructor(private readonly logger: LockLogger) {}

  /** For tests: a call that closes a circle fails, instead of a warning. Its edge is not kept, so the next such call fails as well. */
  refuseCircles(): void {
    this.#refusesCircles = true;
  }

  /**
   * A call will wait for a lock under these locks, innermost first.
   *
   * @throws LockDeadlockError if that closes a circle, where circles are refused
   */
  under(outer: readonly GrantedLock[], wanted: LockEvent): void {
    const inner = this.#nodeOf(wanted, this.#names.of(wanted));
    if (!inner) return;
    for (const { holds } of outer) {
      let after: string | undefined;
      // They are sorted. Of those with one name the largest is enough, because below it any key goes down.
      for (let index = holds.length - 1; index >= 0; index -= 1) {
        const held = holds[index]?.subject;
        if (!held || isSame(held, wanted)) continue;
        const name = this.#names.of(held);
        const node = name === after ? undefined : this.#nodeOf(held, name);
        if (node) this.#add(node, held, inner, wanted, () => subjectsOf(outer));
        after = name;
      }
    }
  }

  /**
   * A call will wait for each of several keys, in sorted order, while it holds those before. Such calls never wait for each other in a circle, but
   * there may be one with a call that nests two of these keys the other way round.
   *
   * @throws LockDeadlockError as {@link under}
   */
  together(keys: readonly string[], plan: LockPlan, outer: readonly GrantedLock[]): void {
    const isEntered = (key: string) =>
      outer.some((lock) => lock.provider === plan.core.name && lock.keys.includes(key));
    // A key that is entered again is not waited for.
    const waited = outer.length === 0 ? keys : keys.filter((key) => !isEntered(key));
    let before: string | undefined;
    for (const [index, key] of waited.entries()) {
      const name = this.#names.of({ key, ...plan.origin });
      if (before !== undefined && name !== before) {
        const [held, wanted] = [subjectOf(waited[index - 1] ?? '', plan), subjectOf(key, plan)];
        const [node, inner] = [this.#nodeOf(held, before), this.#nodeOf(wanted, name)];
        const all = () => [...subjectsOf(outer), ...waited.slice(0, index).map((each) => subjectOf(each, plan))];
        if (node && inner) this.#add(node, held, inner, wanted, all);
      }
      before = name;
    }
  }

  #nodeOf({ provider }: LockEvent, name: string): Node | undefined {
    const path = `${provider}:${name}`;
    let node = this.#nodes.get(path);
    if (!node && this.#nodes.size < MOST_NODES) {
      node = { id: this.#nodes.size, edges: new Map() };
      this.#nodes.set(path, node);
    }
    return node;
  }

  /** @param all what the call holds */
  #add(outer: Node, held: LockEvent, inner: Node, wanted: LockEvent, all: () => readonly LockEvent[]): void {
    const goesDown = isBelow(wanted, held);
    // Keys of one name that go up are in the order that is advised.
    if (outer === inner && !goesDown) return;
    // Readers are a kind of their own: what they hold, they hold together.
    const id = inner.id * 4 + (held.mode === 'shared' ? 2 : 0) + (wanted.mode === 'shared' ? 1 : 0);
    const known = outer.edges.get(id);
    if (!known && this.#edges === MOST_EDGES) return;
    const isKnown = known !== undefined && (known.descends || !goesDown);
    if (isKnown && known.gates.length === 0) return;
    const gates = this.#gatesOf(held, wanted, all());
    const common = known ? known.gates.filter((gate) => gates.includes(gate)) : gates.slice(-MOST_GATES);
    if (isKnown && common.length === known.gates.length) return;
    const descends = goesDown || known?.descends === true;
    const edge: Edge = { outer, inner, held, wanted, descends, gates: common };
    const circle = circleThrough(edge);
    if (circle) this.#report(circle);
    if (!known) this.#edges += 1;
    outer.edges.set(id, edge);
  }

  #gatesOf(held: LockEvent, wanted: LockEvent, all: readonly LockEvent[]): string[] {
    // Another caller holds other keys of these names.
    const names = [this.#names.of(held), this.#names.of(wanted)];
    // Locks in memory keep no other process out of those on a server.
    const providers = [held.provider, wanted.provider];
    return all
      .filter((lock) => lock.mode === 'exclusive' && providers.includes(lock.provider))
      .filter((lock) => !names.includes(this.#names.of(lock)))
      .map(({ provider, key }) => `${provider}:${key}`);
  }

  #report(circle: readonly Edge[]): void {
    const [closing] = circle;
    if (!closing) return;
    if (this.#refusesCircles) throw new LockDeadlockError(messageOf(circle), closing.wanted);
    const ids = circle.map(({ inner }) => inner.id);
    const first = ids.indexOf(Math.min(...ids));
    const name = [...ids.slice(first), ...ids.slice(0, first)].join();
    if (this.#warnedOf.has(name) || this.#warnedOf.size === MOST_WARNINGS) return;
    this.#warnedOf.add(name);
    this.logger.warn(`${messageOf(circle)} (Warned once for each circle.)`);
  }
}

/**
 * The names of locks in the graph. A template's name is its text without values, and without separators at the end: `order` for `order:#{order.id}`,
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

function subjectsOf(locks: readonly GrantedLock[]): LockEvent[] {
  return locks.flatMap(({ holds }) => holds.map(({ subject }) => subject));
}

function isSame(one: LockEvent, other: LockEvent): boolean {
  return one.key === other.key && one.provider === other.provider;
}

/** In the one order of all keys of all providers. */
function isBelow(one: LockEvent, other: LockEvent): boolean {
  return one.provider === other.provider ? one.key < other.key : one.provider < other.provider;
}

/**
 * The shortest circle that `edge` closes, with `edge` as the first: each node once, one edge that goes down, no gate that all edges have, and no two
 * neighbors that meet as readers alone.
 */
function circleThrough(edge: Edge): readonly Edge[] | undefined {
  const { descends, gates } = edge;
  const paths: Path[] = [{ edge, before: undefined, descends, gates }];
  const seen = new Set<string>();
  for (const path of paths) {
    const last = path.edge;
    if (last.inner === edge.outer) {
      if (path.descends && path.gates.length === 0 && excludesNext(last, edge)) return edgesOf(path);
      continue;
    }
    for (const [id, next] of last.inner.edges) {
      if (!excludesNext(last, next) || passes(path, next.inner)) continue;
      const step = {
        edge: next,
        before: path,
        descends: path.descends || next.descends,
        gates: path.gates.filter((gate) => next.gates.includes(gate)),
      };
      const state = [last.inner.id, id, step.descends, ...step.gates.map((gate) => gates.indexOf(gate))].join();
      if (seen.has(state)) continue;
      seen.add(state);
      paths.push(step);
    }
  }
  return undefined;
}

/** Whether a caller of `edge` waits for a caller of `next`, which holds what the first one wants. */
function excludesNext(edge: Edge, next: Edge): boolean {
  return edge.wanted.mode !== 'shared' || next.held.mode !== 'shared';
}

function passes(path: Path, node: Node): boolean {
  for (let each: Path | undefined = path; each; each = each.before) if (each.edge.inner === node) return true;
  return false;
}

function edgesOf(path: Path): readonly Edge[] {
  const edges: Edge[] = [];
  for (let each: Path | undefined = path; each; each = each.before) edges.unshift(each.edge);
  return edges;
}

function messageOf([closing, ...others]: readonly Edge[]): string {
  if (!closing) return '';
  const { held, wanted } = closing;
  if (others.length === 0) {
    return (
      `${nameOf(wanted)} is acquired under ${placeOf(held)}, which sorts after it: two callers that nest in opposite order wait for each other. ` +
      'Acquire keys in sorted order, or all of them in one call by their array.'
    );
  }
  const place = (lock: LockEvent) =>
    lock.provider === wanted.provider ? placeOf(lock) : `${placeOf(lock)} (provider "${lock.provider}")`;
  const elsewhere = others.map((edge) => `${place(edge.wanted)} under ${place(edge.held)}`);
  return (
    `${nameOf(wanted)} is acquired under ${place(held)}, and elsewhere ${elsewhere.join(', and ')}. ` +
    'Callers that do so at the same time wait for each other in a circle until a "wait" ends. ' +
    'Acquire these locks in one order everywhere, or all of them in one call by an array of keys.'
  );
}
