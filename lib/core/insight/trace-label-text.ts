import type { HolderLabel } from '../../api/lock-traces.js';

// W3C Trace Context level 1, version 00, sampled. All-zero ids are invalid.
const TRACEPARENT = '00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01';
const UNSAMPLED = '-';
// Excludes control characters, which a terminal would interpret: labels are untrusted text from the server.
const METHOD = '\\P{C}{1,200}';

const IS_TRACEPARENT = new RegExp(`^${TRACEPARENT}$`);
const IS_METHOD = new RegExp(`^${METHOD}$`, 'u');
const LABEL = new RegExp(`^(${TRACEPARENT}|${UNSAMPLED})(?: (${METHOD}))?$`, 'u');

/** Whether untrusted text could be a method name. */
export function isMethodName(text: unknown): text is string {
  return typeof text === 'string' && IS_METHOD.test(text);
}

/**
 * Formats a label as `traceparent method`, with `-` for a span that is not sampled. `undefined` if the label is empty.
 */
export function labelText({ method, traceparent }: HolderLabel): string | undefined {
  const context = traceparent !== null && IS_TRACEPARENT.test(traceparent) ? traceparent : UNSAMPLED;
  if (isMethodName(method)) return `${context} ${method}`;
  return context === UNSAMPLED ? undefined : context;
}

/** Parses a label. Returns `undefined` if the text is not valid. */
export function readTraceLabel(text: string): HolderLabel | undefined {
  const [, context, method = null] = LABEL.exec(text) ?? [];
  const traceparent = context === undefined || context === UNSAMPLED ? null : context;
  return traceparent === null && method === null ? undefined : { method, traceparent };
}
