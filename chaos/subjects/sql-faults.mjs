import { CLIENT_FAULTS } from './client-faults.mjs';

/** A waiter asks again each second, and the server then sees that the process is gone. The rest is for a busy machine. */
export const SESSIONS_END_WITHIN = 5_000;

/** The faults of a database, of its clients and of the network between them. */
export const SQL_FAULTS = [
  ...CLIENT_FAULTS,
  ...['server paused', 'server restarted', 'KILL CONNECTION', 'statements cancelled'],
];
