import type { DatabaseFamily, Family } from './dialect.js';
import { mysql } from './mysql.js';
import { postgres } from './postgres.js';

/** The only place that knows about both kinds of databases. Everything else uses a Family or a Dialect. */
export const FAMILIES: Readonly<Record<DatabaseFamily, Family>> = { mysql, postgres };
