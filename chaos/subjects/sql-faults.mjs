import { CLIENT_FAULTS } from './client-faults.mjs';

/**
 * A waiter polls every second, and the server then notices that the process is gone. The rest allows for a busy
 * machine.
 */
export const SESSIONS_END_WITHIN = 5_000;

/** Faults of a database, of its clients, and of the network between them. */
export const SQL_FAULTS = [
  ...CLIENT_FAULTS,
  ...['server paused', 'server restarted', 'KILL CONNECTION', 'statements cancelled'],
];
