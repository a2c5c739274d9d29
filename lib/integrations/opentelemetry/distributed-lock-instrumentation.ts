import { type MeterProvider, metrics, trace, type TracerProvider } from '@opentelemetry/api';
import { LockMetrics } from './lock-metrics.js';
import { LockSpans } from './lock-spans.js';

/** The options of {@link DistributedLockInstrumentation}. */
export interface DistributedLockInstrumentationConfig {
  /**
   * Whether spans carry the key (`distributed_lock.key`). Default false: there may be any number of keys, and personal
   * data in them. Metrics never carry it.
   */
  keys?: boolean;
  /** Whether the instrumentation is at work. Kept by `enable()` and `disable()`. */
  enabled?: boolean;
}

/**
 * Spans and metrics of OpenTelemetry for all locks of this process.
 *
 * This class has the form of an `Instrumentation`, so `NodeSDK` and `registerInstrumentations()` take it; without them, call
 * `enable()`. It subscribes to the diagnostics channels of this package and patches nothing: `disable()` leaves no trace,
 * and what is in flight then is closed.
 *
 * @example
 * ```ts
 * new NodeSDK({ instrumentations: [new DistributedLockInstrumentation()] }).start();
 * ```
 */
export class DistributedLockInstrumentation {
  readonly instrumentationName: string = 'nestjs-distributed-lock';
  readonly instrumentationVersion: string = '0.1.0';
  #keys: boolean;
  #tracerProvider: TracerProvider | undefined;
  #meterProvider: MeterProvider | undefined;
  #atWork: { leave(): void }[] = [];

  /** Stores; records nothing before it is enabled. */
  constructor({ keys = false }: DistributedLockInstrumentationConfig = {}) {
    this.#keys = keys;
  }

  /** Begins to record. Does nothing when it does already. */
  enable(): void {
    if (this.#isAtWork) return;
    const { instrumentationName: name, instrumentationVersion: version } = this;
    const tracer = (this.#tracerProvider ?? trace.getTracerProvider()).getTracer(name, version);
    const meter = (this.#meterProvider ?? metrics.getMeterProvider()).getMeter(name, version);
    this.#atWork = [new LockSpans(tracer, this.#keys), new LockMetrics(meter)];
  }

  /** Leaves the channels. */
  disable(): void {
    for (const each of this.#atWork) each.leave();
    this.#atWork = [];
  }

  /** Where spans go. Default: the global tracer provider. */
  setTracerProvider(provider: TracerProvider): void {
    this.#tracerProvider = provider;
    this.#renew();
  }

  /** Where metrics go. Default: the global meter provider. */
  setMeterProvider(provider: MeterProvider): void {
    this.#meterProvider = provider;
    this.#renew();
  }

  setConfig({ keys = false }: DistributedLockInstrumentationConfig): void {
    this.#keys = keys;
    this.#renew();
  }

  getConfig(): DistributedLockInstrumentationConfig {
    return { keys: this.#keys, enabled: this.#isAtWork };
  }

  get #isAtWork(): boolean {
    return this.#atWork.length > 0;
  }

  // An SDK hands over its providers after it has enabled what it instruments.
  #renew(): void {
    if (!this.#isAtWork) return;
    this.disable();
    this.enable();
  }
}
