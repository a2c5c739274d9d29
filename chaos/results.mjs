// The results shown on the pages: one file in chaos/results for each subject, and one for each soak.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { commit } from '../scripts/commit.mjs';
import { codeOfSubject, hashOf } from '../scripts/measured-code.mjs';

const FOLDER = join(import.meta.dirname, 'results');
const KINDS = { faults: '.json', soak: '.soak.json' };

/** Saves the result of a run with faults or of a soak, and replaces the previous one. */
export function keep(kind, { subject, title, server, seed, milliseconds, ...counts }) {
  mkdirSync(FOLDER, { recursive: true });
  const facts = {
    subject,
    title,
    ...(server && { server: server.name }),
    date: new Date().toISOString().slice(0, 10),
    // The results of other subjects don't affect it.
    commit: commit('lib', 'chaos', ':!chaos/results'),
    measured: hashOf(codeOfSubject(subject)),
    seed,
    minutes: Number((milliseconds / 60_000).toFixed(2)),
  };
  const name = server ? `${subject}.${server.row}` : subject;
  writeFileSync(join(FOLDER, name + KINDS[kind]), `${JSON.stringify({ ...facts, ...counts }, null, 2)}\n`);
}

/** The saved results of runs with faults on servers other than this machine's own. */
export function keptOnOtherServers() {
  return read('faults').filter(({ server }) => server !== undefined);
}

/** The saved results of this kind, by subject. */
export function keptResults(kind) {
  return new Map(
    read(kind)
      .filter(({ server }) => server === undefined)
      .map((result) => [result.subject, result]),
  );
}

function read(kind) {
  const isOfKind = (file) => (kind === 'soak') === file.endsWith(KINDS.soak);
  const files = readdirSync(FOLDER).filter((file) => file.endsWith('.json') && isOfKind(file));
  return files.map((file) => JSON.parse(readFileSync(join(FOLDER, file), 'utf8')));
}
