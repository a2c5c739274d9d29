import type { Group } from '../mistake.js';
import { calls, integrations, tests } from './calls.js';
import { decorators, jobs, keys } from './decorators.js';
import { onOthers, onRedis, onSql, unreachable } from './environment.js';
import { manager, moduleOptions } from './module.js';
import { others, redis, sql } from './providers.js';

/** The groups that need no server, in the order of the page. */
export const GROUPS: readonly Group[] = [
  moduleOptions,
  manager,
  redis,
  sql,
  others,
  keys,
  decorators,
  jobs,
  calls,
  tests,
  integrations,
  unreachable,
];

/** The groups that need a running server. */
export const ON_SERVERS: readonly Group[] = [onRedis, onSql, onOthers];
