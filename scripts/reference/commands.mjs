import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from '../ensure-installed.mjs';

/** What `--help` prints: for the program, and for each command what the program's own help lacks. */
export function commandHelp() {
  const general = helpOf();
  const commands = general.flatMap((line) => /^ {2}([a-z]+) .*/.exec(line)?.[1] ?? []);
  return [general, ...commands.map((command) => withoutEnd(helpOf(command), general))]
    .map((lines) => ['```text', ...lines, '```'].join('\n'))
    .join('\n\n');
}

function helpOf(...command) {
  const args = [join(root, 'bin/nestjs-distributed-lock.mjs'), ...command, '--help'];
  return execFileSync(process.execPath, args, { encoding: 'utf8' }).trimEnd().split('\n');
}

/** The lines without a common ending with the other text. */
function withoutEnd(lines, other) {
  let same = 0;
  while (same < lines.length && lines.at(-1 - same) === other.at(-1 - same)) same += 1;
  return lines
    .slice(0, lines.length - same)
    .join('\n')
    .trimEnd()
    .split('\n');
}
