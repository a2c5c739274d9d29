const MAX_QUOTED = 60;

/**
 * Quotes and shortens text for an error message: an invalid key may be megabytes long, and may contain line breaks that
 * forge log lines.
 */
export function quote(text: string): string {
  return text.length <= MAX_QUOTED ? JSON.stringify(text) : `${JSON.stringify(text.slice(0, MAX_QUOTED))}…`;
}
