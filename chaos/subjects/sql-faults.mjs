/** The faults of applications with a database, and of the database. */
export const SQL_FAULTS = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['server paused', 'server restarted', 'KILL CONNECTION'],
];
