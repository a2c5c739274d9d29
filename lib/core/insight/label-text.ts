import type { HolderLabel } from '../../api/lock-traces.js';

// Level 1 of W3C Trace Context, version 00, sampled. Ids of zeros are invalid.
const TRACEPARENT = '00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-01';
const UNSAMPLED = '-';
// Nothing that a terminal or a page would interpret, because the text of a label comes from the server.
const METHOD = '\\P{C}{1,200}';

const IS_TRACEPARENT = new RegExp(`^${TRACEPARENT}$`);
const IS_METHOD = new RegExp(`^${METHOD}$`, 'u');
const LABEL = new RegExp(`^(${TRACEPARENT}|${UNSAMPLED})(?: (${METHOD}))?$`, 'u');

/** Whether it may be the name of a method, as a server has it. */
export function isMethodName(text: unknown): text is string {
  return typeof text === 'string' && IS_METHOD.test(text);
}

/** The text of a label: `traceparent method`, with `-` for a span that is not sampled. `undefined` where there is nothing to say. */
export function labelText({ method, traceparent }: HolderLabel): string | undefined {
  const context = traceparent !== null && IS_TRACEPARENT.test(traceparent) ? traceparent : UNSAMPLED;
  if (isMethodName(method)) return `${context} ${method}`;
  return context === UNSAMPLED ? undefined : context;
}

/** The label of this text; `undefined` for a text that is none. */
export function readLabel(text: string): HolderLabel | undefined {
  const [, context, method = null] = LABEL.exec(text) ?? [];
  const traceparent = context === undefined || context === UNSAMPLED ? null : context;
  return traceparent === null && method === null ? undefined : { method, traceparent };
}
