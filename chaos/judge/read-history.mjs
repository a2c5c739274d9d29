import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { Checker } from './checker.mjs';

/** Judges a recorded history. */
export async function judge(file, subject) {
  const checker = new Checker(subject);
  for await (const line of createInterface({ input: createReadStream(file) })) checker.observe(JSON.parse(line));
  return checker;
}
