// What a lock promises besides excluding others. Each promise costs time, so a comparison names the promises that the
// other lock doesn't make.
import { BASELINE } from './builds.mjs';

/** The words that the page explains. */
const WAITING = 'waiting';
const TOKEN = 'token';
const ORDER = 'order';
const VALIDITY = 'validity';
const LOSS = 'loss';

/** By group: the promises of this library's lock. */
const OURS_HAS = {
  redis: [WAITING, TOKEN, ORDER, VALIDITY, LOSS],
  limits: [WAITING, ORDER, VALIDITY, LOSS],
  redlock: [WAITING, VALIDITY, LOSS],
  mariadb: [WAITING, VALIDITY, LOSS],
  postgres: [WAITING, VALIDITY, LOSS],
  zookeeper: [WAITING, TOKEN, ORDER, VALIDITY, LOSS],
};

/** By candidate: the promises of its lock as it is acquired in this benchmark, according to its source. */
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

/** The promises that this library's lock makes in this group and the other lock doesn't. */
export function lacking(group, other) {
  if (other === BASELINE) return [];
  const [ours, has] = [OURS_HAS[group === 'redis-scale' ? 'redis' : group], OTHER_HAS[other]];
  if (ours === undefined || has === undefined)
    throw new Error(`promises.mjs does not state what "${other}" of group ${group} promises.`);
  return ours.filter((promise) => !has.includes(promise));
}
