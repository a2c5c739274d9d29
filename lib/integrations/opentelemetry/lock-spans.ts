import {
  type Attributes,
  isSpanContextValid,
  type Span,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
} from '@opentelemetry/api';
import { acquireChannel, holdChannel } from '../../core/events/channels.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace, HolderLabel, HoldTrace } from '../../api/lock-traces.js';
import { acquireOutcome, ATTRIBUTE, attributesOf, holdOutcome } from './attributes.js';
import { OpenOperations } from './open-operations.js';

/**
 * Adds two child spans to the span in which a lock was requested: one for acquiring it and one for holding it.
 * The task's spans are siblings of the second span, not its children, because the lock doesn't cause them. A long wait
 * is linked to the hold that blocks it, which may be in another process.
 */
export class LockSpans {
  readonly #acquisitions: OpenOperations<AcquireTrace, Span>;
  readonly #holds: OpenOperations<HoldTrace, Span>;

  /**
   * @param withKeys whether spans carry the key: the number of keys is unbounded, and they may contain personal data
   */
  constructor(
    private readonly tracer: Tracer,
    private readonly withKeys: boolean,
  ) {
    this.#acquisitions = new OpenOperations(acquireChannel, {
      begin: (trace) => {
        const span = this.#start('lock.acquire', trace);
        if (span.isRecording()) {
          trace.onHolder = (holder) => {
            link(span, holder);
          };
        }
        return span;
      },
      end: (span, trace) => {
        end(span, trace && acquireOutcome(trace));
      },
    });
    this.#holds = new OpenOperations(holdChannel, {
      begin: (trace) => {
        const span = this.#start('lock.hold', trace);
        trace.traceparent = traceparentOf(span);
        return span;
      },
      end: (span, trace) => {
        end(span, trace && holdOutcome(trace));
      },
    });
  }

  leave(): void {
    this.#acquisitions.leave();
    this.#holds.leave();
  }

  #start(name: string, event: LockEvent): Span {
    const attributes = attributesOf(event);
    if (this.withKeys) attributes[ATTRIBUTE.key] = event.key;
    return this.tracer.startSpan(name, { attributes });
  }
}

/** A span's W3C `traceparent`; `null` if it is not sampled, `undefined` without an SDK. */
function traceparentOf(span: Span): string | null | undefined {
  const context = span.spanContext();
  if (!isSpanContextValid(context)) return undefined;
  const isSampled = span.isRecording() && (context.traceFlags & TraceFlags.SAMPLED) !== 0;
  return isSampled ? `00-${context.traceId}-${context.spanId}-01` : null;
}

/** Links a wait to the hold that blocks it. */
function link(span: Span, { method, traceparent }: HolderLabel): void {
  // Disabling the instrumentation ends the span.
  if (!span.isRecording()) return;
  if (method !== null) span.setAttribute(ATTRIBUTE.holderMethod, method);
  const [, traceId, spanId] = traceparent?.split('-') ?? [];
  if (traceId === undefined || spanId === undefined) return;
  const context = { traceId, spanId, traceFlags: TraceFlags.SAMPLED, isRemote: true };
  span.addLink({ context, attributes: { [ATTRIBUTE.link]: 'holder' } });
}

// Don't record error messages in spans, because they contain the key.
function end(span: Span, outcome: Attributes = {}): void {
  span.setAttributes(outcome);
  const name = outcome[ATTRIBUTE.outcome];
  // A busy lock or a canceled wait is not a failure.
  if (typeof name === 'string' && FAILURES.has(name)) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

const FAILURES: ReadonlySet<string> = new Set(['unavailable', 'refused', 'failed', 'lost']);
