// The candidates for limited locks. Each creates a function that acquires a share of `key` and resolves to a function
// that releases it.
import { Redis } from 'ioredis';
import { builds } from '../builds.mjs';
import * as locks from './candidates.mjs';

/** The candidate `name` with this limit on the server at `port`. */
export async function candidate(name, port, limit) {
  if (builds.includes(name)) {
    const { acquire } = await locks.candidate(name, port);
    return { acquire: (key) => acquire(key, { limit }) };
  }
  if (name === locks.SCRIPTS) {
    return { acquire: await locks.scripts(new Redis(port), { mode: 'limited', limited: { weight: 1, limit } }) };
  }
  const { semaphoreOf } = await import('../peers/adapters.mjs');
  return { acquire: semaphoreOf(new Redis(port), limit) };
}
