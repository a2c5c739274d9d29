// Compiled by `npm run typecheck`, never run.
import type { LockAdmin, LockContention, WaitSum } from '../../lib/index.js';
import type { ContentionTrace } from '../../lib/api/lock-traces.js';

declare const admin: LockAdmin;
declare const trace: ContentionTrace;

const rows: LockContention[] = admin.contention();
for (const { template, provider, queue, holder, unknown, instances } of rows) {
  const names: readonly (string | null)[] = [template, provider, ...instances.map(({ instance }) => instance)];
  const sums: readonly WaitSum[] = [queue, holder, unknown, ...instances];
  console.log(names, sums);
  // @ts-expect-error: the sums are those of the row, and nobody else changes them
  holder.waits = 0;
}
const cause: 'holder' | 'queue' | 'unknown' = trace.blockedBy;
// @ts-expect-error: the profile is of the whole process
admin.contention('order:#{id}');
console.log(cause);
