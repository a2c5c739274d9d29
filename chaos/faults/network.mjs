import { setTimeout as sleep } from 'node:timers/promises';

// Faults on the network between one worker and its servers.

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
/**
 * A NAT silently drops a worker's idle connections. Callers that don't wait for a holder must get their locks over new
 * connections.
 */
export const connectionsDropped = {
  name: 'connections dropped',
  async begin({ fleet, worker }) {
    // While a provider is known to be down, a failed request isn't repeated. Let that period end first.
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
  // No other fault may begin before the connections have been replaced and every caller has its result: `never` excuses
  // nothing.
  settle: 3_500,
};
export const clientsReset = { name: 'clients reset', begin: onAllProxies((proxy) => proxy.forget()) };
export const connectionsRefused = {
  name: 'connections refused',
  begin: onAllProxies((proxy) => proxy.refuse()),
  end: heal,
};

/** Cuts the worker off from one of its servers, while all other workers still reach that server. */
const onOneProxy = (act) => ({
  begin(context) {
    context.proxy = context.random.pick(context.worker.proxies);
    act(context.proxy);
  },
  end: ({ proxy }) => proxy.heal(),
});
export const oneServerHalfOpen = { name: 'one server half-open', ...onOneProxy((proxy) => proxy.freeze()) };
export const oneServerRefused = { name: 'one server refused', ...onOneProxy((proxy) => proxy.refuse()) };
