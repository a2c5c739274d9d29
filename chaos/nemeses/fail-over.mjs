import { setTimeout as sleep } from 'node:timers/promises';

// The leader is lost, and the others must elect another one.

const ELECTED_WITHIN = 20_000;

/** The master hangs until another one has been promoted, by Sentinel or by its Cluster, and comes back as a replica. */
export const failOver = {
  name: 'fail-over',
  async begin({ backend }) {
    const old = await backend.master();
    old.signal('SIGSTOP');
    for (const until = performance.now() + ELECTED_WITHIN; (await backend.master()) === old; await sleep(50)) {
      if (performance.now() > until) throw new Error('Nobody is promoted.');
    }
    old.signal('SIGCONT');
  },
  settle: 2_000,
};

/** An operator makes another provider the active one, or the same. */
export const switchedManually = {
  name: 'provider switched manually',
  begin: ({ fleet, victim, backend, random }) =>
    fleet.order(victim, 'switch', { engine: random.pick(backend.providers) }),
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

/** The leader of ZooKeeper hears nobody and is heard by nobody but its clients. */
export const leaderCutOff = {
  name: 'leader cut off',
  async begin(context) {
    context.leader = await context.backend.ensemble.leader();
    context.backend.ensemble.cutOff(context.leader);
  },
  end: ({ backend, leader }) => backend.ensemble.join(leader),
};
