import { setTimeout as sleep } from 'node:timers/promises';

// Failovers: a leader fails, or an operator replaces it.

const SWITCH_TIMEOUT = 20_000;

/**
 * The master hangs until Sentinel or the Cluster has promoted another server, and returns as a replica. Until it is
 * demoted, it still serves clients whose connections haven't noticed.
 */
export const failover = {
  name: 'failover',
  async begin({ backend }) {
    const old = await backend.master();
    old.signal('SIGSTOP');
    await until(async () => (await backend.master()) !== old, 'No replica was promoted');
    old.signal('SIGCONT');
    await until(() => isReplica(old), 'The old master was not demoted');
  },
  settle: 2_000,
};

async function until(condition, failure) {
  for (const end = performance.now() + SWITCH_TIMEOUT; !(await condition()); await sleep(50)) {
    if (performance.now() > end) throw new Error(`${failure} within ${SWITCH_TIMEOUT} ms.`);
  }
}

async function isReplica({ url }) {
  const { Redis } = await import('ioredis');
  const client = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
  client.on('error', () => undefined);
  try {
    const [role] = await client.role();
    return role === 'slave';
  } catch {
    return false;
  } finally {
    client.disconnect();
  }
}

/** An operator activates another provider, or the one that is already active. */
export const switchedManually = {
  name: 'provider switched manually',
  begin: ({ fleet, worker, backend, random }) =>
    fleet.send(worker, 'switch', { provider: random.pick(backend.providers) }),
};

/** The ZooKeeper leader dies and returns as a follower. */
export const leaderKilled = {
  name: 'leader killed',
  async begin({ backend: { ensemble } }) {
    const leader = await ensemble.leader();
    await leader.kill();
    await leader.restart();
  },
};

/** The ZooKeeper leader loses its connections to the other servers, but keeps its clients. */
export const leaderCutOff = {
  name: 'leader cut off',
  async begin(context) {
    context.leader = await context.backend.ensemble.leader();
    context.backend.ensemble.cutOff(context.leader);
  },
  end: ({ backend, leader }) => backend.ensemble.join(leader),
};
