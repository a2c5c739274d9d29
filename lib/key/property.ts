// Only a Proxy is likely to have a longer prototype chain, which may even be endless.
const MAX_PROTOTYPES = 32;

/**
 * Reads a property on behalf of a key template: an own property of the value, or a getter of its class.
 *
 * Everything else that is inherited, such as methods and constants, counts as absent, so a template can reach neither a
 * constructor nor a polluted `Object.prototype`. The `length` and the indices of strings and arrays are own properties.
 */
export function readProperty(holder: unknown, name: string | number): unknown {
  if (holder === null || holder === undefined || typeof holder === 'function') return undefined;
  const readable = Object.hasOwn(holder, name) || (typeof holder === 'object' && inheritsGetter(holder, name));
  return readable ? (holder as Record<string | number, unknown>)[name] : undefined;
}

/** The first `limit` items of an array; `undefined` if the value is not an array. */
export function readItems(list: unknown, limit: number): readonly unknown[] | undefined {
  if (!Array.isArray(list)) return undefined;
  return Array.from({ length: Math.min(list.length, limit) }, (_, index) => readProperty(list, index));
}

function inheritsGetter(holder: object, name: string | number): boolean {
  let prototype = prototypeOf(holder);
  for (let depth = 0; prototype !== null && depth < MAX_PROTOTYPES; depth++) {
    const next = prototypeOf(prototype);
    // The end of the chain is Object.prototype, possibly from another realm. Its properties don't count.
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
