import { setTimeout as sleep } from 'node:timers/promises';

// A leader fails, or an operator changes it.

const PROMOTION_TIMEOUT = 20_000;

/** The master hangs until Sentinel or the Cluster has promoted another server, and comes back as a replica. */
export const failover = {
  name: 'failover',
  async begin({ backend }) {
    const old = await backend.master();
    old.signal('SIGSTOP');
    for (const until = performance.now() + PROMOTION_TIMEOUT; (await backend.master()) === old; await sleep(50)) {
      if (performance.now() > until) throw new Error(`No replica was promoted within ${PROMOTION_TIMEOUT} ms.`);
    }
    old.signal('SIGCONT');
  },
  settle: 2_000,
};

/** An operator makes another provider the active one, or the same. */
export const switchedManually = {
  name: 'provider switched manually',
  begin: ({ fleet, worker, backend, random }) =>
    fleet.send(worker, 'switch', { provider: random.pick(backend.providers) }),
};

/** The leader of ZooKeeper dies, and comes back as a follower. */
export const leaderKilled = {
  name: 'leader killed',
  async begin({ backend: { ensemble } }) {
    const leader = await ensemble.leader();
    await leader.kill();
    await leader.restart();
  },
};

/** The leader of ZooKeeper loses its connections to the other servers, but not those to its clients. */
export const leaderCutOff = {
  name: 'leader cut off',
  async begin(context) {
    context.leader = await context.backend.ensemble.leader();
    context.backend.ensemble.cutOff(context.leader);
  },
  end: ({ backend, leader }) => backend.ensemble.join(leader),
};
