// Faults that callers cause: no server and no process fails.

const KEYS = 100;
const FAR = 5;

/**
 * 300 callers wait for one worker's locks, 5 ms away from their servers, while the other callers continue. Waiting
 * callers must not delay the acquisition of free keys or the renewal of leases.
 */
export const manyWaitingKeys = {
  name: 'many waiting keys',
  begin({ fleet, worker, duration }) {
    for (const { proxies } of fleet.members) for (const proxy of proxies) proxy.slow(FAR, 'both');
    const keys = Array.from({ length: KEYS }, (_, index) => `crowd:${index}`);
    const all = (given) => keys.map((key) => ({ key, mode: 'exclusive', isExtra: true, ...given }));
    fleet.send(worker, 'add', { sections: all({ wait: 0, length: duration }) });
    for (const member of fleet.members) fleet.send(member, 'add', { sections: all({ wait: 2 * duration, length: 0 }) });
  },
  end({ fleet }) {
    for (const { proxies } of fleet.members) for (const proxy of proxies) proxy.heal();
  },
};
