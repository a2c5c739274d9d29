import { type LockBusyError, LockConfigError, type LockDeadlockError } from '../../api/errors.js';
import { isBusy } from '../../api/is-busy.js';
import { publishSkipped } from '../../core/plan/lock-plan.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import type { OnLoss } from '../../core/hold/guarded-task.js';
import { withAbort } from '../../core/toolkit/abort-listeners.js';
import { type LockKey, normalizeKeys } from '../../key/lock-key.js';
import type { Run } from '../../recipes/jobs/job.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import type { BusyContext, LossHandler } from './distributed-lock-options.js';
import type { MethodPlan } from './method-plan.js';
import type { RequestContext } from './request-context.js';

/** The lock of one call; or what the call answers instead, because the lock stayed busy. */
export type CallLock =
  | {
      readonly lock: GrantedLock;
      readonly onLost: OnLoss<unknown>;
      /** Set where the call is a run of a job, whose end is to be recorded. */
      readonly run: Run | undefined;
    }
  | { readonly lock: undefined; readonly instead: unknown; readonly isSkipped: boolean };

/** One call of a decorated method: by which plan, on which instance, and with which arguments. */
export class MethodCall {
  constructor(
    private readonly plan: MethodPlan,
    private readonly self: unknown,
    private readonly args: readonly unknown[],
    /** The request whose handler is the method. */
    private readonly request: RequestContext | undefined,
  ) {}

  /**
   * Acquires the lock.
   *
   * @param signal ends the wait, like the signal that the caller may have given: of a stream, whose consumer may leave
   * @throws what `onBusy` throws for a busy lock, and every other lock error
   */
  async lock(signal?: AbortSignal): Promise<CallLock> {
    const { plan, self, args, request } = this;
    if (plan.job) return this.#beginTick(plan.job, signal !== undefined);
    const { manager } = plan.service;
    const keys = plan.key.of({ self, args, request: request?.request, context: plan.context });
    if (plan.key.template === null) manager.missingValues.check(keys, plan.name);
    const onLost = typeof plan.onLost === 'string' ? plan.onLost : this.#onLost(plan.onLost, keys);
    const signals = [signal, plan.signalOf(self, args), request?.answered].filter((each) => each !== undefined);
    try {
      const lock = await underAny(signals, (any) => manager.acquirePlanned(plan.lock, keys, { signal: any }));
      return { lock, onLost, run: undefined };
    } catch (error) {
      if (isBusy(error)) return this.#onBusy(error, keys);
      throw error;
    }
  }

  async #beginTick(job: ScheduledJob, isStream: boolean): Promise<CallLock> {
    if (isStream) {
      throw new LockConfigError(
        `${this.plan.name} returns a stream, but a method that runs once for each tick must return a promise: make it async.`,
      );
    }
    const run = await job.begin();
    if (!run) return { lock: undefined, instead: undefined, isSkipped: true };
    return { lock: run.lock, onLost: this.plan.lock.settings.onLost, run };
  }

  /** The answer of a call whose lock stayed busy. @throws the error, or what the handler throws */
  async #onBusy(error: LockBusyError | LockDeadlockError, keys: LockKey): Promise<CallLock> {
    const { plan } = this;
    if (plan.onBusy === 'throw') throw error;
    if (plan.onBusy === 'skip') {
      publishSkipped(plan.lock, error.key, 'busy');
      return { lock: undefined, instead: undefined, isSkipped: true };
    }
    const instead = await plan.onBusy.call(this.self as never, { ...this.#described(keys), error });
    return { lock: undefined, instead, isSkipped: false };
  }

  #onLost(handle: LossHandler, keys: LockKey): OnLoss<unknown> {
    return (error) => handle.call(this.self as never, { ...this.#described(keys), error });
  }

  #described(keys: LockKey): Omit<BusyContext, 'error'> {
    const { name, lock } = this.plan;
    return { keys: normalizeKeys(keys), provider: lock.core.name, method: name, args: this.args };
  }
}

/** Works under a signal that aborts with any of these. `AbortSignal.any` of Node 20 leaves an entry with a signal that outlives the call. */
function underAny<T>(
  [first, ...others]: readonly AbortSignal[],
  work: (signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  if (first === undefined || others.length === 0) return work(first);
  const controller = new AbortController();
  let under = () => work(controller.signal);
  for (const signal of [first, ...others]) {
    const inner = under;
    const passOn = () => {
      controller.abort(signal.reason);
    };
    under = () => withAbort(signal, passOn, inner);
  }
  return under();
}
