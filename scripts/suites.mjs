// Which suite a test file is in. A file outside of FOLDERS needs no server: `npm test` runs it. `npm run test:all` adds the files in these
// folders, of which `npm test` runs those in EVERY_CHANGE: a file gets its line there with the real fault that it has found or keeps away.

/** The folders whose tests take real time: on real servers, in several processes, or by a real clock. */
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
  'test/redis/hand-off.spec.ts': 'a repeated ask moved a request behind those of processes that had come later',
  'test/redis/lock-script.spec.ts': 'an ask that was late on its way lost the place of its caller',
  'test/redis/outage.spec.ts': 'a server executed an old ask after an outage, and a dead request held a whole lease',
  'test/redis/remembered-waiters.spec.ts': 'waiters that a lagging replica brought back cost a provisional lease each',
  'test/redis/strangers.spec.ts': 'a forged message made a process delete keys of others',
  'test/redis/wake-ups.spec.ts': 'a waiter dropped the notice that came before the answer to its ask',
  'test/redlock/lost-votes.spec.ts': 'a hold was lost although a majority had votes for it',
  'test/redlock/tokens.spec.ts': 'two nodes that had lost their data made up a smaller token',
  'test/typeorm/limits-interleavings.spec.ts': 'statements that overtook each other let in more than the limit',
  'test/typeorm/transaction-ends.spec.ts': 'a statement of the application ended the transaction, and the lock with it',
  'test/sql/server-identity.spec.ts': 'a server with two addresses counted as two servers',
  'test/sql/statements.spec.ts': 'after a migration every prepared statement failed permanently',
  'test/zookeeper/limits.spec.ts': 'a frozen waiter kept out those behind it, although there was room',
  'test/zookeeper/session.spec.ts': 'servers that had lost their data refused a process permanently',
  'test/failover/failover.spec.ts': 'a provider that renewed old locks and refused new ones stayed in use',
  'test/failover/simulation.spec.ts': 'two holders, by clocks that drift on a network that fails in all ways',
  'test/combined/combined-lock-provider.spec.ts': 'a lock that was held was reported lost, and its members kept it',
  'test/memcached/memcached-lock-provider.spec.ts': 'a stop reported answers that were on their way as an outage',
  'test/chaos/checker.spec.ts': 'the judge of `npm run chaos` blamed a lock for what no token can stop',
};

/** What `npm test` runs of FOLDERS, a path each. A path that ends with a slash stands for a folder. */
export const CHOSEN = Object.keys(EVERY_CHANGE);

/** The files that need a server or real time, as a pattern of Jest. */
export const SERVERS = `/test/(${FOLDERS.join('|')})/`;

/** Those of them that `npm test` leaves out. */
export const NOT_CHOSEN = `^(?!.*/(${CHOSEN.join('|').replaceAll('.', '\\.')})).*${SERVERS}`;

/** The kit over several real servers at a time: each case waits for a failover's window, or for two servers. Its fast form runs in memory. */
export const LONG = '/test/long/';
