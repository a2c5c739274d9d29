import { whyTooOld } from '../../shared/oldest-version.js';

// The first that has SET … GET and ZADD … LT, which the lock script sends.
const OLDEST = '6.2';

/** Why locks cannot be on this server, by its answer to `INFO server`. Valkey says there which version of Redis it can stand in for. */
export function whyTooOldRedis(info: string): string | undefined {
  return whyTooOld('Redis', /^redis_version:(\S+)/m.exec(info)?.[1] ?? '', OLDEST);
}
