/** The faults of a database, of its clients and of the network between them. */
export const SQL_FAULTS = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped'],
  ...[
    'network delayed',
    'requests lost',
    'replies lost',
    'connections half-open',
    'connections reset',
    'connections refused',
  ],
  ...['server paused', 'server restarted', 'KILL CONNECTION'],
];
