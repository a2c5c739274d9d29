// The promises of a lock, beside excluding others. Each costs time, so a comparison names those that the other one does not make.
import { BASELINE } from './builds.mjs';

/** In words, as the page explains them. */
const WAITING = 'waiting';
const TOKEN = 'token';
const ORDER = 'order';
const VALIDITY = 'validity';
const LOSS = 'loss';

/** By group: what a lock of this library has. */
const OURS_HAS = {
  redis: [WAITING, TOKEN, ORDER, VALIDITY, LOSS],
  limits: [WAITING, ORDER, VALIDITY, LOSS],
  redlock: [WAITING, VALIDITY, LOSS],
  mariadb: [WAITING, VALIDITY, LOSS],
  postgres: [WAITING, VALIDITY, LOSS],
  zookeeper: [WAITING, TOKEN, ORDER, VALIDITY, LOSS],
};

/** By candidate, which of these a lock has that it acquires as it is measured here: read from its source. */
const OTHER_HAS = {
  'redis-semaphore': [WAITING, LOSS],
  'simple-redis-mutex': [WAITING, TOKEN],
  '@verrou/core': [WAITING, VALIDITY],
  'redlock-universal': [WAITING],
  murlock: [WAITING],
  'redlock 4': [WAITING, VALIDITY],
  'redlock 5 beta': [WAITING, VALIDITY],
  '@sesamecare-oss/redlock': [WAITING, VALIDITY],
  'raw ioredis': [WAITING],
  'the same scripts, bare ioredis': [WAITING, TOKEN],
  'raw mysql2': [],
  'raw pg': [],
  'raw client': [ORDER],
};

/** The promises of a lock of this library in this group that the other one does not make. */
export function lacking(group, other) {
  if (other === BASELINE) return [];
  const [ours, has] = [OURS_HAS[group === 'redis-scale' ? 'redis' : group], OTHER_HAS[other]];
  if (ours === undefined || has === undefined)
    throw new Error(`It is not stated what "${other}" of group ${group} promises.`);
  return ours.filter((promise) => !has.includes(promise));
}
