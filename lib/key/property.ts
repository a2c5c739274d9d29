// Only a Proxy can have a longer chain of prototypes, even one without an end.
const MAX_PROTOTYPES = 32;

/**
 * Reads a property as a key template may: one of the value's own, or a getter of its class.
 *
 * Methods, constants and whatever else is inherited count as absent, so that neither `Object.prototype`, polluted or not,
 * nor a constructor can be reached. Strings and arrays have a `length` and indices of their own.
 */
export function readProperty(holder: unknown, name: string | number): unknown {
  if (holder === null || holder === undefined || typeof holder === 'function') return undefined;
  const readable = Object.hasOwn(holder, name) || (typeof holder === 'object' && inheritsGetter(holder, name));
  return readable ? (holder as Record<string | number, unknown>)[name] : undefined;
}

/** The first items of an array; `undefined` for what is no array. */
export function readItems(list: unknown, limit: number): readonly unknown[] | undefined {
  if (!Array.isArray(list)) return undefined;
  return Array.from({ length: Math.min(list.length, limit) }, (_, index) => readProperty(list, index));
}

function inheritsGetter(holder: object, name: string | number): boolean {
  let prototype = prototypeOf(holder);
  for (let depth = 0; prototype !== null && depth < MAX_PROTOTYPES; depth++) {
    const next = prototypeOf(prototype);
    // The end of the chain is Object.prototype, be it the one of another realm, which belongs to no class.
    if (next === null) return false;
    const property = Object.getOwnPropertyDescriptor(prototype, name);
    if (property !== undefined) return property.get !== undefined;
    prototype = next;
  }
  return false;
}

function prototypeOf(value: object): object | null {
  return Object.getPrototypeOf(value) as object | null;
}
