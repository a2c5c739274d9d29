// The names that other libraries use for our options.
const SYNONYMS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ['timeout', 'waittime', 'acquiretimeout', 'retries', 'retrycount', 'retrydelay'].map((word) => [word, 'wait']),
  ),
  ...Object.fromEntries(
    ['ttl', 'duration', 'expire', 'expires', 'expiry', 'leasetime', 'locktimeout', 'lockatmostfor'].map((word) => [
      word,
      'lease',
    ]),
  ),
  lockatleastfor: 'minHold',
};

/**
 * The known name that the user probably meant. An unknown name may be a misspelling or another library's name for the
 * option.
 */
export function meantBy(name: string, known: readonly string[]): string | undefined {
  const synonym = SYNONYMS[name.toLowerCase()];
  return synonym !== undefined && known.includes(synonym) ? synonym : nearest(name, known);
}

/**
 * The known name closest to a misspelled one, if at most a third of the letters differ or the known name contains it.
 */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const wanted = name.toLowerCase();
  const most = Math.min(Math.max(Math.floor(wanted.length / 3), 1), 3);
  const scored = known
    .filter((each) => each.toLowerCase() !== oppositeOf(wanted))
    .map((each) => [each, difference(wanted, each.toLowerCase())] as const);
  const [best] = scored.sort(([, one], [, other]) => one - other);
  if (best !== undefined && best[1] <= most) return best[0];
  return wanted.length < 4 ? undefined : known.find((each) => each.toLowerCase().includes(wanted));
}

/** Swaps the prefixes min and max: such names differ by only two letters but mean opposite things. */
function oppositeOf(name: string): string {
  return name.replace(/^m(?:in|ax)/, (limit) => (limit === 'min' ? 'max' : 'min'));
}

/**
 * The Damerau–Levenshtein distance: how many letters must be inserted, deleted, replaced, or swapped with the next one.
 */
function difference(one: string, other: string): number {
  let before: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let row = 1; row <= one.length; row += 1) {
    const next = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const isSame = one[row - 1] === other[column - 1];
      const isExchanged =
        row > 1 && column > 1 && one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      next[column] = Math.min(
        (last[column] ?? 0) + 1,
        (next[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (isSame ? 0 : 1),
        isExchanged ? (before[column - 2] ?? 0) + 1 : Infinity,
      );
    }
    [before, last] = [last, next];
  }
  return last[other.length] ?? 0;
}
