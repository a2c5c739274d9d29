import { CLIENT_FAULTS } from './client-faults.mjs';

/** The faults of a database, of its clients and of the network between them. */
export const SQL_FAULTS = [...CLIENT_FAULTS, ...['server paused', 'server restarted', 'KILL CONNECTION']];
