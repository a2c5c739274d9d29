import type { LockPlan } from '../../core/plan/lock-plan.js';
import { quote } from '../../key/quote.js';
import { isScheduled } from '../methods/schedule-metadata.js';
import { type DeclaredMethod, isSameMethod } from '../methods/declared-method.js';
import type { Application } from './explore-application.js';

/**
 * Finds locks that can only time out, because another of the application's locks holds the key longer: two locks of one
 * method, or a lock on a key that a leader holds for its whole term. A job would be skipped silently, and a call would
 * fail after its full wait.
 */
export function findKeysHeldLonger({ plans, problems, warnings }: Application): void {
  const leaders = [...plans].filter(([{ isElected }]) => isElected);
  for (const [method, { lock }] of plans) {
    if (method.isElected) continue;
    const [waited] = method.locksBelow.flatMap((inner) => waitedKey(method, lock, inner, plans.get(inner)?.lock) ?? []);
    if (waited !== undefined) {
      problems.add(
        `${method.name}: two of its locks have the key ${quote(waited)}, so the lower one waits for the upper one: remove one, or set reentrant: true on the lower one`,
      );
    }
    const rivals = leaders
      .filter(
        ([each, plan]) => method.key.templates.includes(each.key.source as string) && plan.lock.core === lock.core,
      )
      .map(([each]) => each);
    const leader = rivals.find((each) => isSameMethod(each, method)) ?? rivals[0];
    if (!leader) continue;
    const { decorator } = leader;
    const key = quote(leader.key.source as string);
    if (isSameMethod(leader, method)) {
      if (!entersTerm(method, leader, lock)) {
        problems.add(
          `${method.name}: ${decorator} holds the key ${key} for its whole term, so the lock on the same key waits for it: remove that lock, or give it another key`,
        );
      }
    } else if (isScheduled(method)) {
      problems.add(
        `${method.name}: ${decorator} on ${leader.name} holds the key ${key} for its whole term, so no scheduled run gets the lock: give the job another key, or replace its lock with @OnlyLeader(${key})`,
      );
    } else if (lock.settings.reentrant !== true) {
      warnings.add(
        `${method.name} locks ${key}, which ${decorator} on ${leader.name} holds for its whole term, so only calls under the leader lock can acquire it: ` +
          'give one of them another key, or call the method through currentLock().run() in the leader task.',
      );
    }
  }
}

/** A key that both locks share, if the inner lock can never be acquired while the outer lock is held. */
function waitedKey(
  outer: DeclaredMethod,
  { core, settings }: LockPlan,
  inner: DeclaredMethod,
  lock: LockPlan | undefined,
): string | undefined {
  if (lock?.core !== core || lock.settings.reentrant === true) return undefined;
  const { mode } = lock.settings;
  // Shared and limited locks can have several holders.
  if (mode !== 'exclusive' && mode === settings.mode) return undefined;
  return outer.key.templates.find((template) => inner.key.templates.includes(template));
}

/** Whether a method's lock is acquired during its own leader decorator's term and so re-enters the term's lock. */
function entersTerm(method: DeclaredMethod, leader: DeclaredMethod, { settings }: LockPlan): boolean {
  const isInside = leader.decorator === '@RunAsLeader' || leader.locksBelow.includes(method);
  return isInside && settings.reentrant === true;
}
