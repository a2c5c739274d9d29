import { cutOffStandbyPromoted, gracefulSwitchover } from '../faults/switchovers.mjs';

/** How late a holder that has noticed may be recorded on a busy machine, in ms. */
const RECORDED = 500;

/**
 * A subject on a writer with a replica, which take turns. None of its other faults ends connections, because that would
 * excuse overlaps of row and advisory locks by itself.
 *
 * @param type the type of the database
 */
export function switchoversOf(subject, type) {
  const { lifetime, excuse } = subject;
  const switchovers = type === 'postgres' ? [gracefulSwitchover, cutOffStandbyPromoted] : [gracefulSwitchover];
  const faults = switchovers.map(({ name }) => name);
  const hasSessions = excuse !== undefined;
  return {
    ...subject,
    title: `${subject.title}, with a replica`,
    faults: [...faults, 'worker killed', 'worker paused', 'event loop blocked'],
    // The lease of a version lock is replicated before the replica is promoted.
    ...(hasSessions && {
      allows: Object.fromEntries(faults.map((name) => [name, ['overlap']])),
      excuse:
        'The old writer is read-only or gone. The holder notices at its next heartbeat, or when its connection ends',
    }),
    lostAtBegin: {
      // docs/providers/sql.md, "Failover": a heartbeat detects that the server is read-only.
      [gracefulSwitchover.name]: lifetime / 3 + RECORDED,
      // The primary dies along with its connections.
      [cutOffStandbyPromoted.name]: RECORDED,
    },
    // A fault before a switchover must not excuse what the switchover did.
    calm: [lifetime, lifetime + 500],

    async startBackend() {
      const { startSqlPair } = await import('./sql-pair.mjs');
      return subject.startBackend({ start: startSqlPair });
    },

    async connect(settings) {
      const { LIMITED_ACCOUNT } = await import('./sql-server.mjs');
      return {
        ...(await subject.connect({
          ...settings,
          account: type === 'mariadb' ? LIMITED_ACCOUNT : {},
          // Without its counter, only the lock itself can be refused on a read-only server.
          fencing: !settings.worker.startsWith('w1'),
        })),
        // docs/providers/sql.md, "Which servers are refused".
        isDocumentedError: ({ code, message }) => code === 'LOCK_CONFIG' && /read.only|takes writes/i.test(message),
      };
    },
  };
}
