// Control characters (including U+009B, which terminals obey), Unicode's two line separators, and characters that
// change the text direction.
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]/gu;

/**
 * The text on one line, safe for a log: a key may contain line breaks that forge log lines, or escape sequences that a
 * terminal obeys.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, escaped);
}

const PRINTABLE_ASCII = /^[\x20-\x7E]+$/;

/**
 * Whether text from an untrusted source can be kept and shown unchanged: printable ASCII with at most `most`
 * characters.
 */
export function isShortAscii(text: unknown, most: number): text is string {
  return typeof text === 'string' && text.length <= most && PRINTABLE_ASCII.test(text);
}

/** Whether a value can be an instance name. It may come from an option, or from a server that others can write to. */
export function isInstanceName(text: unknown): text is string {
  return isShortAscii(text, 100);
}

const MOST_SHOWN = 40;

/** An option's value, shortened for a message. Don't use it for potential secrets, such as addresses. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case 'string':
      return `'${value.slice(0, MOST_SHOWN)}'`;
    case 'function':
      return 'a function';
    case 'object':
      return value === null ? 'null' : kindOf(value);
    default:
      return String(value);
  }
}

function kindOf(value: object): string {
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list';
  // An object without a prototype has no constructor.
  const { name = 'Object' } = (value.constructor as { name?: string } | undefined) ?? {};
  return name === 'Object' ? 'an object' : `a ${name}`;
}

function escaped(character: string): string {
  const short = JSON.stringify(character).slice(1, -1);
  return short === character ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}` : short;
}

/**
 * A failure's cause in parentheses: its message, or its code if Node didn't set a message; empty if it has neither.
 * The lock error that quotes this text hides secrets.
 */
export function inBrackets(cause: unknown): string {
  if (!(cause instanceof Error)) return '';
  const { message, code } = cause as Error & { readonly code?: unknown };
  const words = message || (typeof code === 'string' ? code : '');
  return words && ` (${words.replace(/\.$/, '')})`;
}
