// Also those of terminals (U+009B), the two other line breaks of Unicode, and what turns the direction of text.
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_C}]/gu;

/** The text on one line, as a log may show it: a key may have line breaks that forge lines, and escapes that a terminal obeys. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, escaped);
}

function escaped(character: string): string {
  const short = JSON.stringify(character).slice(1, -1);
  return short === character ? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}` : short;
}
