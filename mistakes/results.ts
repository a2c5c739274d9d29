import { messageOf } from './application.js';
import { compilerMessages } from './compiler.js';
import { type Group, type Mistake, missingIn, type Part } from './mistake.js';

/** The outcome of one mistake. */
export interface Result {
  readonly mistake: Mistake;
  readonly message: string;
  readonly missing: readonly Part[];
}

/** A group of mistakes with their outcomes. */
export interface GroupResult {
  readonly title: string;
  readonly results: readonly Result[];
}

/**
 * Makes all mistakes sequentially, because Nest's log is shared by the whole process.
 *
 * @param placesOf returns what the code of a mistake knows about its server
 */
export async function makeAll(
  groups: readonly Group[],
  placesOf: (server: string) => Promise<Readonly<Record<string, unknown>>> = noServer,
): Promise<GroupResult[]> {
  const compiled = compilerMessages(groups.flatMap(({ mistakes }) => mistakes.filter(({ how }) => how === 'types')));
  const made: GroupResult[] = [];
  for (const { title, mistakes } of groups) {
    const results: Result[] = [];
    for (const mistake of mistakes) {
      const places = mistake.server === undefined ? {} : await placesOf(mistake.server);
      const message = stable(compiled.get(mistake.id) ?? (await messageOf(mistake, places)));
      results.push({ mistake, message, missing: missingIn(message, mistake) });
    }
    made.push({ title, results });
  }
  return made;
}

function noServer(server: string): Promise<never> {
  return Promise.reject(new Error(`There is no ${server} here.`));
}

/** Replaces what differs from run to run with the text on the page. */
function stable(message: string): string {
  return message
    .replace(/live applications: \d+/, 'live applications: 1')
    .replace(/("lock:\{0\})[0-9a-f]{12}"/, '$1…"')
    .replace(/whole wait of \d+ ms/, 'whole wait of 50 ms')
    .replace(/instance "[^"]+"( \([^)]+\))? has held it for \d+ m?s/, 'instance "host:1"$1 has held it for 50 ms')
    .replace(/127\.0\.0\.1:\d{5}\b/g, '127.0.0.1:<port>');
}
