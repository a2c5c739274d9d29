import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { Checker } from './checker.mjs';

const linesOf = (file) => createInterface({ input: createReadStream(file) });

/** The subject, seed, and commit from the first entry of a history. Empty for a history without a head. */
export async function headOf(file) {
  for await (const line of linesOf(file)) {
    const { event, ...head } = JSON.parse(line);
    return event === 'head' ? head : {};
  }
  return {};
}

/** Judges a recorded history. */
export async function judge(file, subject) {
  const checker = new Checker(subject);
  for await (const line of linesOf(file)) checker.observe(JSON.parse(line));
  return checker;
}
