// Assigns test files to suites. A file outside FOLDERS needs no server, and `npm test` runs it. `npm run test:all` adds
// the files in these folders. Of these, `npm test` runs the ones in EVERY_CHANGE, where each line names the real bug
// that the file has found or prevents.

/** The folders whose tests take real time: on real servers, in several processes, or with a real clock. */
const FOLDERS = [
  ...[
    'contract',
    'redis',
    'redlock',
    'sql',
    'typeorm',
    'zookeeper',
    'memcached',
    'failover',
    'combined',
    'providers',
    'sample',
  ],
  ...['scripts', 'chaos', 'docs', 'long', 'cli/servers'],
];

const EVERY_CHANGE = {
  'test/contract/': 'every provider keeps the contract, on its real server',
  'test/redis/hand-off.spec.ts': 'a repeated request moved behind the requests of processes that had arrived later',
  'test/redis/lock-script.spec.ts': 'a delayed request lost the place of its caller',
  'test/redis/outage.spec.ts':
    'a server executed an old request after an outage, and a dead request held for a whole lease',
  'test/redis/remembered-waiters.spec.ts': 'waiters that a lagging replica restored cost a provisional lease each',
  'test/redis/strangers.spec.ts': 'a forged message made a process delete keys of other applications',
  'test/redis/wake-ups.spec.ts': 'a waiter dropped a notice that arrived before the response to its request',
  'test/redlock/lost-votes.spec.ts': 'a hold was lost although a majority had voted for it',
  'test/redlock/tokens.spec.ts': 'two nodes that had lost their data generated a smaller token',
  'test/typeorm/limits-interleavings.spec.ts': 'reordered statements admitted more holders than the limit',
  'test/typeorm/transaction-ends.spec.ts': 'a statement of the application ended the transaction, and the lock with it',
  'test/sql/server-identity.spec.ts': 'a server with two addresses counted as two servers',
  'test/sql/statements.spec.ts': 'after a migration, every prepared statement failed permanently',
  'test/zookeeper/limits.spec.ts': 'a frozen waiter blocked the waiters behind it, although the limit had room',
  'test/zookeeper/session.spec.ts': 'servers that had lost their data rejected a process permanently',
  'test/failover/failover.spec.ts': 'a provider that renewed old locks and refused new ones stayed active',
  'test/combined/combined-lock-provider.spec.ts': 'a held lock was reported lost while its members kept it',
  'test/memcached/memcached-lock-provider.spec.ts': 'stopping reported responses in flight as an outage',
  'test/chaos/checker.spec.ts': 'the judge of `npm run chaos` blamed a lock for something that no token can prevent',
};

/** The parts of FOLDERS that `npm test` runs, one path each. A path that ends with a slash is a folder. */
export const CHOSEN = Object.keys(EVERY_CHANGE);

/** The files that need a server or real time, as a Jest pattern. */
export const SERVERS = `/test/(${FOLDERS.join('|')})/`;

/** The files among these that `npm test` excludes. */
export const NOT_CHOSEN = `^(?!.*/(${CHOSEN.join('|').replaceAll('.', '\\.')})).*${SERVERS}`;

/**
 * The kit on several real servers at the same time: each case waits for a failover's window, or for two servers. Its
 * fast form runs in memory.
 */
export const LONG = '/test/long/';
