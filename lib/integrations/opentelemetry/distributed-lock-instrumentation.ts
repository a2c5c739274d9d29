import { type MeterProvider, metrics, trace, type TracerProvider } from '@opentelemetry/api';
import { LockMetrics } from './lock-metrics.js';
import { LockSpans } from './lock-spans.js';

/** The options of {@link DistributedLockInstrumentation}. */
export interface DistributedLockInstrumentationConfig {
  /**
   * Whether spans carry the key (`distributed_lock.key`). Default false: the number of keys is unbounded, and they may
   * contain personal data. Metrics never carry the key.
   */
  keys?: boolean;
  /** Whether the instrumentation is enabled. Set by `enable()` and `disable()`. */
  enabled?: boolean;
}

/**
 * OpenTelemetry spans and metrics for all locks of this process.
 *
 * This class has the shape of an `Instrumentation`, so `NodeSDK` and `registerInstrumentations()` accept it; without
 * them, call `enable()`. It subscribes to this package's diagnostics channels and patches nothing: `disable()` leaves
 * nothing behind and ends everything in flight.
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
  #recorders: { leave(): void }[] = [];

  /** Records nothing until `enable()` is called. */
  constructor({ keys = false }: DistributedLockInstrumentationConfig = {}) {
    this.#keys = keys;
  }

  /** Starts recording. Does nothing if already enabled. */
  enable(): void {
    if (this.#isEnabled) return;
    const { instrumentationName: name, instrumentationVersion: version } = this;
    const tracer = (this.#tracerProvider ?? trace.getTracerProvider()).getTracer(name, version);
    const meter = (this.#meterProvider ?? metrics.getMeterProvider()).getMeter(name, version);
    this.#recorders = [new LockSpans(tracer, this.#keys), new LockMetrics(meter)];
  }

  /** Stops recording. */
  disable(): void {
    for (const each of this.#recorders) each.leave();
    this.#recorders = [];
  }

  /** Where spans go. Default: the global tracer provider. */
  setTracerProvider(provider: TracerProvider): void {
    this.#tracerProvider = provider;
    this.#restart();
  }

  /** Where metrics go. Default: the global meter provider. */
  setMeterProvider(provider: MeterProvider): void {
    this.#meterProvider = provider;
    this.#restart();
  }

  setConfig({ keys = false }: DistributedLockInstrumentationConfig): void {
    this.#keys = keys;
    this.#restart();
  }

  getConfig(): DistributedLockInstrumentationConfig {
    return { keys: this.#keys, enabled: this.#isEnabled };
  }

  get #isEnabled(): boolean {
    return this.#recorders.length > 0;
  }

  // An SDK sets its providers after enabling its instrumentations.
  #restart(): void {
    if (!this.#isEnabled) return;
    this.disable();
    this.enable();
  }
}
