/** Faults of clients, and of the network between clients and any server. */
export const CLIENT_FAULTS = [
  ...['worker killed', 'worker paused', 'waiters killed', 'event loop blocked', 'client clock stepped'],
  ...['network delayed', 'requests lost', 'replies lost'],
  ...['connections half-open', 'connections reset', 'clients reset', 'connections forgotten', 'connections refused'],
  'many waiting keys',
];
