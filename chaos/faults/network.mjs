import { setTimeout as sleep } from 'node:timers/promises';

// Faults between one worker and its servers.

const onAllProxies = (act) => (context) => context.worker.proxies.forEach((proxy) => act(proxy, context));
const heal = onAllProxies((proxy) => proxy.heal());

export const networkDelayed = {
  name: 'network delayed',
  begin: onAllProxies((proxy, { random }) => proxy.slow(random.between(20, 200), 'both')),
  end: heal,
};
export const requestsLost = {
  name: 'requests lost',
  begin: onAllProxies((proxy) => proxy.loseRequests()),
  end: heal,
};
export const repliesLost = { name: 'replies lost', begin: onAllProxies((proxy) => proxy.loseReplies()), end: heal };
export const connectionsHalfOpen = {
  name: 'connections half-open',
  begin: onAllProxies((proxy) => proxy.freeze()),
  end: heal,
};
export const connectionsReset = { name: 'connections reset', begin: onAllProxies((proxy) => proxy.resetAll()) };
export const connectionsForgotten = {
  name: 'connections forgotten',
  begin: onAllProxies((proxy) => proxy.loseState()),
};

const OUTAGE_OVER = 2_500;
/** A NAT has dropped the connections of a worker while they were idle. Callers that do not wait for a holder get their locks on new ones. */
export const connectionsDropped = {
  name: 'connections dropped',
  async begin({ fleet, worker }) {
    // A provider that is known to be down is not asked twice.
    await sleep(OUTAGE_OVER);
    for (const proxy of worker.proxies) proxy.drop();
    const keys = ['dropped:1', 'dropped:2', 'dropped:3'].map((key) => `${key}:${worker.name}`);
    const sections = keys.map((key) => ({
      key,
      mode: 'exclusive',
      isExtra: true,
      wait: 0,
      length: 0,
      never: 'LOCK_UNAVAILABLE',
    }));
    fleet.send(worker, 'add', { sections });
  },
  // Until they have been given up, other ones made, and every caller has its answer: another fault would excuse none.
  settle: 3_500,
};
export const clientsReset = { name: 'clients reset', begin: onAllProxies((proxy) => proxy.forget()) };
export const connectionsRefused = {
  name: 'connections refused',
  begin: onAllProxies((proxy) => proxy.refuse()),
  end: heal,
};

/** The worker is cut off from one of its servers, which all other workers reach. */
const onOneProxy = (act) => ({
  begin(context) {
    context.proxy = context.random.pick(context.worker.proxies);
    act(context.proxy);
  },
  end: ({ proxy }) => proxy.heal(),
});
export const oneServerHalfOpen = { name: 'one server half-open', ...onOneProxy((proxy) => proxy.freeze()) };
export const oneServerRefused = { name: 'one server refused', ...onOneProxy((proxy) => proxy.refuse()) };
