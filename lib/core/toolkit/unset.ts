/** In options of other libraries, those that say which server is asked, and as whom. With another one, a process would lock elsewhere than the others. */
const ADDRESSES: ReadonlySet<string> = new Set([
  ...['url', 'uri', 'connectionString', 'host', 'port', 'path', 'socketPath', 'sentinels', 'sentinelRootNodes', 'name'],
  ...['user', 'username', 'password', 'sentinelUsername', 'sentinelPassword', 'db', 'database'],
]);
const WITHOUT_DEFAULT = /^(?:url|uri|connectionString|sentinels|sentinelRootNodes|\d+)$/;

/** The text that a template or `String()` makes of a variable that is not set, as a part of an address. */
const UNSET_PART = /(?:^|[/:@,])(undefined|null|NaN)(?:$|[/:@,?])/;

/** So far options have options in them, as those of a node of a Cluster have. A client that is given with them may contain itself. */
const DEEPEST = 4;

/** Calls `refuse` for a value that comes from a variable that is not set; never with the value itself, which may have a password. */
export function refuseUnsetPart(options: object, name: string, refuse: (why: string) => void): void {
  const descriptor = Object.getOwnPropertyDescriptor(options, name) ?? {};
  // A getter gives what is right at each connection, and may be expensive.
  if (!('value' in descriptor)) return;
  const value: unknown = descriptor.value;
  const [, part] = (typeof value === 'string' && UNSET_PART.exec(value)) || [];
  if (value === undefined || Number.isNaN(value)) refuse(`is ${String(value)}: is the variable set? Set it`);
  else if (part !== undefined) {
    refuse(`${part === value ? `is the text '${part}'` : `has the text '${part}' in it`}: is the variable set? Set it`);
  }
}

/** The same for the options within an option, such as `options.sentinels[1].host`. */
export function refuseUnsetWithin(
  value: unknown,
  path: string,
  refuse: (path: string, why: string) => void,
  depth = 0,
): void {
  if (depth >= DEEPEST || !isPlain(value)) return;
  for (const name of Object.keys(value)) {
    const place = Array.isArray(value) ? `${path}[${name}]` : `${path}.${name}`;
    if (Array.isArray(value) || ADDRESSES.has(name)) {
      const remedy = WITHOUT_DEFAULT.test(name) ? '.' : ', or leave the option out if you want its default.';
      refuseUnsetPart(value, name, (why) => {
        refuse(place, why + remedy);
      });
    }
    const inner = Object.getOwnPropertyDescriptor(value, name)?.value as unknown;
    refuseUnsetWithin(inner, place, refuse, depth + 1);
  }
}

/** Not an object of a class, such as a complete configuration that a driver has made: that has all options, most of them undefined. */
export function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return Array.isArray(value) || prototype === Object.prototype || prototype === null;
}
