import type { Member } from '../../api/lock-provider.js';
import type { LockInfo } from '../../api/lock-info.js';
import { UNUSED } from './part.js';

// Asked for at the start, to see who answers.
const PROBE_KEY = 'nestjs-distributed-lock:probe';

/** Whether the engine can be reached: it is asked to release what nobody holds, which changes nothing. */
export async function isReachable(engine: Member, holder: string): Promise<boolean> {
  try {
    // Some know without asking that they hold nothing, and have to look when they are inspected.
    await engine.inspect?.(PROBE_KEY);
    return (await engine.release({ key: PROBE_KEY, holder, mode: 'exclusive' }, UNUSED)) !== 'unknown';
  } catch {
    return false;
  }
}

/** What the engines together know of the key: as many as it takes must know of it. */
export async function inspect(engines: readonly Member[], needed: number, key: string): Promise<LockInfo | null> {
  const answers = await Promise.allSettled(engines.map(async (engine) => (await engine.inspect?.(key)) ?? null));
  const infos = answers.flatMap((answer) => (answer.status === 'fulfilled' ? (answer.value ?? []) : []));
  const silent = answers.filter((answer) => answer.status === 'rejected');
  const [first] = infos;
  if (first && infos.length >= needed) return { ...first, fencingToken: null };
  // Those that were silent might make up the number.
  if (infos.length + silent.length >= needed && silent[0]) throw silent[0].reason;
  return null;
}

/** In reverse, as releases are; whatever becomes of each. */
export async function forceRelease(engines: readonly Member[], needed: number, key: string): Promise<boolean> {
  const failures: unknown[] = [];
  let had = false;
  for (const engine of engines.toReversed()) {
    try {
      had = ((await engine.forceRelease?.(key)) ?? false) || had;
    } catch (error) {
      failures.push(error);
    }
  }
  // A holder that keeps as many as it takes has lost nothing.
  if (failures.length >= needed) throw failures[0];
  return had;
}
