const MAX_QUOTED = 60;

/**
 * Quotes the beginning of a text for an error message: a key may be megabytes long, and it may hold line breaks with
 * which it would forge lines in a log.
 */
export function quote(text: string): string {
  return text.length <= MAX_QUOTED ? JSON.stringify(text) : `${JSON.stringify(text.slice(0, MAX_QUOTED))}…`;
}
