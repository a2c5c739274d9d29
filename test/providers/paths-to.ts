import { types } from 'node:util';

/** How many objects deep an inspector is assumed to look. */
const DEPTH = 10;

/**
 * Returns the paths from an object to each matching string, through everything that an inspector can show: hidden
 * properties, symbols, getters, collections and the values of promises.
 *
 * An inspector prints an object again for each path to it, 50,000 times as many as there are objects for an ioredis
 * connection. So this visits each object only on the shortest path.
 */
export async function pathsTo(words: RegExp, root: object): Promise<string[]> {
  const found: string[] = [];
  const seen = new Set<unknown>([root]);
  let level: (readonly [path: string, object: object])[] = [['', root]];
  for (let depth = 0; depth <= DEPTH; depth += 1) {
    const next: typeof level = [];
    for (const [path, object] of level) {
      const value = types.isPromise(object) ? await valueOf(object) : undefined;
      for (const [name, part] of [['value', value] as const, ...partsOf(object)]) {
        if (words.test(name) || (typeof part === 'string' && words.test(part))) found.push(`${path}.${name}`);
        if (part === null || !['object', 'function'].includes(typeof part) || seen.has(part)) continue;
        seen.add(part);
        next.push([`${path}.${name}`, part as object]);
      }
    }
    level = next;
  }
  return found;
}

/** Returns a promise's value or reason, or undefined if it is pending. */
async function valueOf(promise: Promise<unknown>): Promise<unknown> {
  return Promise.race([promise, Promise.resolve()]).catch((error: unknown) => error);
}

/** The neighbors of a timer in Node.js's list of all timers, which an inspector does not follow. */
const OTHER_TIMERS: readonly PropertyKey[] = ['_idlePrev', '_idleNext'];

function* partsOf(object: object): Generator<readonly [name: string, part: unknown]> {
  // An inspector shows bytes as numbers.
  if (ArrayBuffer.isView(object)) return;
  if (types.isMap(object) || types.isSet(object)) {
    for (const [key, part] of object.entries()) yield* [['key', key] as const, [String(key), part] as const];
  }
  for (const key of Reflect.ownKeys(object)) {
    if (!OTHER_TIMERS.includes(key)) yield [String(key), partOf(object, object, key)];
  }
  // The getters of its class.
  for (let owner = object, next; (next = Reflect.getPrototypeOf(owner)); owner = next) {
    for (const key of Reflect.ownKeys(owner)) {
      if (Reflect.getOwnPropertyDescriptor(owner, key)?.get) yield [String(key), partOf(object, owner, key)];
    }
  }
}

function partOf(object: object, owner: object, key: PropertyKey): unknown {
  const property = Reflect.getOwnPropertyDescriptor(owner, key);
  try {
    return property?.get ? (Reflect.apply(property.get, object, []) as unknown) : property?.value;
  } catch (error) {
    return error;
  }
}
