// Also those of terminals (U+009B), the two other line breaks of Unicode, and what turns the direction of text.
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]/gu;

/** The text on one line, as a log may show it: a key may have line breaks that forge lines, and escapes that a terminal obeys. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, escaped);
}

const PRINTABLE_ASCII = /^[\x20-\x7E]+$/;

/** Whether a text that others may have written can be shown and kept as it is: printable ASCII, at most so many characters. */
export function isShortAscii(text: unknown, most: number): text is string {
  return typeof text === 'string' && text.length <= most && PRINTABLE_ASCII.test(text);
}

/** Whether it may be the name of an instance: of an option, or as a server has it, where others may have written it. */
export function isInstanceName(text: unknown): text is string {
  return isShortAscii(text, 100);
}

const MOST_SHOWN = 40;

/** A value that was given for an option, as a message shows it: short, and on one line. Never for what may be a secret, such as an address. */
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

/** Why something has failed, in brackets: the words of the cause, or its code where Node gives no words. Empty without either. The error that quotes them hides secrets. */
export function inBrackets(cause: unknown): string {
  if (!(cause instanceof Error)) return '';
  const { message, code } = cause as Error & { readonly code?: unknown };
  const words = message || (typeof code === 'string' ? code : '');
  return words && ` (${words.replace(/\.$/, '')})`;
}
