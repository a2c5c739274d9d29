/**
 * Client library options that select the server or the user. If one of them silently falls back to its default, the
 * process acquires its locks on the wrong server.
 */
const ADDRESSES: ReadonlySet<string> = new Set([
  ...['url', 'uri', 'connectionString', 'host', 'port', 'path', 'socketPath', 'sentinels', 'sentinelRootNodes', 'name'],
  ...['user', 'username', 'password', 'sentinelUsername', 'sentinelPassword', 'db', 'database'],
]);
const WITHOUT_DEFAULT = /^(?:url|uri|connectionString|sentinels|sentinelRootNodes|\d+)$/;

/** Matches an address with a part that came from an unset variable, such as `redis://undefined:6379`. */
const UNSET_PART = /(?:^|[/:@,])(undefined|null|NaN)(?:$|[/:@,?])/;

/**
 * How deep to search nested options, such as a Cluster node's. Limited, because options may contain a client, which
 * refers to itself.
 */
const MAX_DEPTH = 4;

/**
 * Calls `refuse` if a value probably comes from an unset variable. Never passes the value, which may contain a
 * password.
 */
export function refuseUnsetPart(options: object, name: string, refuse: (why: string) => void): void {
  const descriptor = Object.getOwnPropertyDescriptor(options, name) ?? {};
  // Don't call getters: they may be expensive and are meant to be read for each connection.
  if (!('value' in descriptor)) return;
  const value: unknown = descriptor.value;
  const [, part] = (typeof value === 'string' && UNSET_PART.exec(value)) || [];
  if (value === undefined || Number.isNaN(value)) refuse(`is ${String(value)}: set the variable it comes from`);
  else if (part !== undefined) {
    refuse(`${part === value ? 'is' : 'contains'} the text '${part}': set the variable it comes from`);
  }
}

/** Does the same for nested options, such as `options.sentinels[1].host`. */
export function refuseUnsetWithin(
  value: unknown,
  path: string,
  refuse: (path: string, why: string) => void,
  depth = 0,
): void {
  if (depth >= MAX_DEPTH || !isPlain(value)) return;
  for (const name of Object.keys(value)) {
    const place = Array.isArray(value) ? `${path}[${name}]` : `${path}.${name}`;
    if (Array.isArray(value) || ADDRESSES.has(name)) {
      const remedy = WITHOUT_DEFAULT.test(name) ? '.' : ', or omit the option to use its default.';
      refuseUnsetPart(value, name, (why) => {
        refuse(place, why + remedy);
      });
    }
    const inner = Object.getOwnPropertyDescriptor(value, name)?.value as unknown;
    refuseUnsetWithin(inner, place, refuse, depth + 1);
  }
}

/**
 * Whether a value is an array or an object literal. A configuration built by a driver is an instance of a class, and
 * most of its options are undefined.
 */
export function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === Object.prototype || prototype === null;
}
