import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Attributes, Histogram, Meter, MetricOptions, ObservableResult, UpDownCounter } from '@opentelemetry/api';
import {
  acquireChannel,
  contentionChannel,
  eventChannels,
  holdChannel,
  jobChannel,
} from '../../core/events/channels.js';
import type { LockEvent, LockEventListener, LockEventName } from '../../api/lock-events.js';
import type { AcquireTrace, ContentionTrace, HoldTrace, JobTrace } from '../../api/lock-traces.js';
import { monotonicNow } from '../../core/toolkit/real-timers.js';
import { acquireOutcome, ATTRIBUTE, attributesOf, blockerOf, holdOutcome } from './attributes.js';
import { OpenOperations } from './open-operations.js';

/** A measurement in progress. */
interface Measurement {
  readonly attributes: Attributes;
  readonly startedAt: number;
}

/** Metrics for waits, holds, and failures. The histogram counts show how many waits and holds have finished. */
export class LockMetrics {
  readonly #traces: readonly { leave(): void }[];
  readonly #subscriptions: (() => void)[] = [];
  /** The election event of each current term. */
  readonly #terms: LockEvent[] = [];
  readonly #leading: UpDownCounter;
  readonly #jobs = new Set<JobTrace>();

  constructor(meter: Meter) {
    const waiting = meter.createUpDownCounter('distributed_lock.waiting', {
      description: 'Callers that have requested a lock and are still waiting.',
      unit: '{caller}',
    });
    const waits = meter.createHistogram('distributed_lock.acquire.duration', {
      ...SECONDS,
      description: 'How long callers waited for a lock, whatever the outcome.',
    });
    const contention = meter.createHistogram('distributed_lock.contention.duration', {
      description: 'How long callers waited for a busy lock, by what blocked them, as a count and a sum.',
      unit: 's',
      // Series are already split by instance, so buckets would create too many series.
      advice: { explicitBucketBoundaries: [] },
    });
    const held = meter.createUpDownCounter('distributed_lock.held', {
      description: 'Locks held by this process.',
      unit: '{lock}',
    });
    const holds = meter.createHistogram('distributed_lock.hold.duration', {
      ...SECONDS,
      description: 'How long locks were held.',
    });
    const successes = meter.createGauge('distributed_lock.last_success', {
      description: 'When a decorated method last succeeded under its lock, in seconds since the Unix epoch.',
      unit: 's',
    });
    const renewals = meter.createCounter('distributed_lock.renewals', {
      description: 'Lease renewals, including those the backend did not respond to.',
      unit: '{renewal}',
    });
    const skipped = meter.createCounter('distributed_lock.skipped', {
      description:
        "Calls that did not run because their lock was busy (onBusy: 'skip'), their tick had already started (@RunOnce), or another process was leading (@OnlyLeader).",
      unit: '{call}',
    });
    const overdue = meter.createObservableGauge('distributed_lock.job.overdue', {
      description:
        "How long a job's tick has been overdue, as far as this process knows. 0 if every due tick has started.",
      unit: 's',
    });
    const outages = meter.createCounter('distributed_lock.outages', {
      description: 'How often a provider backend stopped responding.',
      unit: '{outage}',
    });
    this.#leading = meter.createUpDownCounter('distributed_lock.leading', {
      description: "Keys that this process leads: 1 from the election until the term's task has ended.",
      unit: '{term}',
    });
    const elections = meter.createCounter('distributed_lock.elections', {
      description: 'How often this process was elected leader.',
      unit: '{election}',
    });
    const resignations = meter.createCounter('distributed_lock.resignations', {
      description: 'Terms that have ended in this process, by reason.',
      unit: '{resignation}',
    });
    this.#traces = [
      new OpenOperations<AcquireTrace, Measurement>(acquireChannel, measure(waiting, waits, acquireOutcome)),
      new OpenOperations<HoldTrace, Measurement>(
        holdChannel,
        measure(held, holds, holdOutcome, (attributes, { method, error, failed }) => {
          // Locks acquired through `LockService` can't be distinguished by method.
          if (method !== null && !error && !failed) successes.record(Date.now() / 1000, attributes);
        }),
      ),
    ];
    this.#on('renewed', (event) => {
      renewals.add(1, { ...attributesOf(event), [ATTRIBUTE.outcome]: 'renewed' });
    });
    this.#on('renewal-failed', (event) => {
      renewals.add(1, { ...attributesOf(event), [ATTRIBUTE.outcome]: 'unanswered' });
    });
    this.#on('skipped', (event) => {
      skipped.add(1, attributesOf(event));
    });
    this.#on('elected', (event) => {
      elections.add(1, attributesOf(event));
      this.#leading.add(1, attributesOf(event));
      this.#terms.push(event);
    });
    this.#on('resigned', (event) => {
      resignations.add(1, { ...attributesOf(event), [ATTRIBUTE.resignReason]: event.reason });
      const index = this.#terms.findIndex(({ key, provider }) => key === event.key && provider === event.provider);
      if (index === -1) return;
      this.#terms.splice(index, 1);
      this.#leading.add(-1, attributesOf(event));
    });
    this.#subscribe(contentionChannel.name, (message) => {
      const trace = message as ContentionTrace;
      contention.record(trace.waited / 1000, { ...attributesOf(trace), ...blockerOf(trace) });
    });
    this.#subscribe(jobChannel.name, (job) => this.#jobs.add(job as JobTrace));
    const observe = (result: ObservableResult): void => {
      for (const job of this.#jobs) {
        const time = job.overdue();
        if (time === undefined) this.#jobs.delete(job);
        else result.observe(time / 1000, attributesOf(job));
      }
    };
    overdue.addCallback(observe);
    this.#subscriptions.push(() => {
      overdue.removeCallback(observe);
    });
    this.#on('unavailable', ({ provider }) => {
      outages.add(1, { [ATTRIBUTE.provider]: provider });
    });
  }

  leave(): void {
    for (const trace of this.#traces) trace.leave();
    for (const unsubscribe of this.#subscriptions) unsubscribe();
    for (const term of this.#terms.splice(0)) this.#leading.add(-1, attributesOf(term));
  }

  #on<N extends LockEventName>(name: N, listener: LockEventListener<N>): void {
    this.#subscribe(eventChannels[name].name, listener as (message: unknown) => void);
  }

  #subscribe(channel: string | symbol, onMessage: (message: unknown) => void): void {
    subscribe(channel, onMessage);
    this.#subscriptions.push(() => {
      unsubscribe(channel, onMessage);
    });
  }
}

/** Counts operations in flight and records their durations. */
function measure<T extends LockEvent>(
  now: UpDownCounter,
  durations: Histogram,
  outcome: (trace: T) => Attributes,
  onEnd?: (attributes: Attributes, trace: T) => void,
) {
  return {
    begin: (trace: T): Measurement => {
      const attributes = attributesOf(trace);
      now.add(1, attributes);
      return { attributes, startedAt: monotonicNow() };
    },
    end: ({ attributes, startedAt }: Measurement, trace?: T) => {
      now.add(-1, attributes);
      if (!trace) return;
      durations.record((monotonicNow() - startedAt) / 1000, { ...attributes, ...outcome(trace) });
      onEnd?.(attributes, trace);
    },
  };
}

// Covers everything from an in-memory lock to a nightly job.
const BOUNDARIES = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const SECONDS: MetricOptions = { unit: 's', advice: { explicitBucketBoundaries: BOUNDARIES } };
