import { setTimeout as sleep } from 'node:timers/promises';

// Actions of a database operator: KILL CONNECTION, pg_terminate_backend, KILL QUERY, pg_cancel_backend.

export const killConnection = {
  name: 'KILL CONNECTION',
  begin: ({ server, random }) => server.killConnections(random),
};

const CANCELS = 40;
/**
 * An idle session is closed after a third of its guard. With a short guard, a lock left on a session would end before
 * the test notices it.
 */
const LONG_GUARD = 30_000;
const PATIENCE = 1_500;
const LENGTH = 5;
/** A canceled release is retried after a second or two, and a lock left on a session stays for ten. */
const LAST_PATIENCE = 4_000;
/**
 * Cancels the sessions' statements when a holder has called `release()`, at about the time a waiter is granted the
 * lock. The release and the cancel are in flight at the same time, so either may arrive first. Meanwhile, two processes
 * compete for a separate key. When both have finished, the key must be free for another worker.
 */
export const statementsCancelled = {
  name: 'statements cancelled',
  async begin({ subject: { recovery }, fleet, worker, server, random }) {
    const key = `cancelled:${worker.name}`;
    const given = { key, mode: 'exclusive', isExtra: true, length: LENGTH, wait: PATIENCE };
    const rivals = await fleet.startBeside(worker, 2, { given, clients: 1, sessionGuard: LONG_GUARD });
    for (const rival of rivals) fleet.send(rival, 'run');
    await server.cancelStatements(random, CANCELS, async () => {
      const isReleased = await fleet.nextRelease(random.pick(rivals), key);
      // Even the shortest sleep takes longer than most grants.
      if (random.chance(0.3)) await sleep(1);
      return isReleased;
    });
    await fleet.drain(recovery, rivals);
    const released = fleet.nextRelease(worker, key, LAST_PATIENCE + PATIENCE);
    fleet.send(worker, 'add', { sections: [{ ...given, wait: LAST_PATIENCE, never: 'LOCK_BUSY' }] });
    await released;
    await fleet.remove(rivals);
  },
};
