/** Faults in what an application and its operators use: keys, Nest, the commands. */
export const APPLICATION = [
  {
    id: 'half-surrogates-in-keys',
    file: 'lib/key/key-value.ts',
    from: 'if (LONE_SURROGATE.test(text)) {',
    to: 'if (false) {',
    breaks: 'two values that are not well-formed Unicode make the same key on a server',
    killedBy: 'test/key/key-value.spec.ts',
    test: 'encodeKeyValue refuses',
  },
  {
    id: 'capacity-is-misuse',
    file: 'lib/nest/transports/client-error.ts',
    from: 'error instanceof LockUnavailableError || error instanceof LockCapacityError',
    to: 'error instanceof LockUnavailableError',
    breaks: 'a client gets 500 where too many callers wait',
    killedBy: 'test/nest/transports/http-errors.spec.ts',
    test: 'Express /full answers 503 and Retry-After',
  },
  {
    id: 'password-in-query-shown',
    file: 'lib/cli/source.ts',
    from: ' || /[?&]pass(word|wd)?=/i.test(address)',
    to: '',
    breaks: 'a password in the query of an address is not recognized',
    killedBy: 'test/cli/arguments.spec.ts',
    test: 'the address postgres://host/shop?user=a&password=hunter2',
  },
];
