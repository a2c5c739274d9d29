import type { LockInfo } from '../../api/lock-info.js';
import { printable } from '../../api/printable.js';
import { withJson } from '../../core/toolkit/with-json.js';
import { type Command, type CommandContext, listOf, namespaceHint, otherNamespacesHint } from '../command.js';
import { ExitCode } from '../exit-code.js';
import { COLUMNS, rowOf } from '../lock-text.js';
import { tableLines } from '../table.js';

/** How many locks are kept in memory, and sorted by their keys. A longer table consists of several such parts. */
const PART = 1_000;

export const list: Command = {
  shape: { subject: 'prefix' },
  usage: `list [prefix]

Shows the keys that are held or retained; with a prefix, those that begin with it.

  --prefix order:   the same as the argument`,
  run: (context) => (context.args.json ? listJson(context) : listTable(context)),
};

/** One array, a lock a line. */
async function listJson({ args, namespace, terminal }: CommandContext): Promise<ExitCode> {
  let count = 0;
  for await (const lock of listOf(namespace, args.subject ?? '')) {
    await terminal.print(`${count === 0 ? '[' : ','}\n${printable(JSON.stringify(withJson(lock)))}`);
    count += 1;
    terminal.progress(count);
  }
  await terminal.print(count === 0 ? '[]\n' : '\n]\n');
  return ExitCode.done;
}

async function listTable({ args, namespace, terminal }: CommandContext): Promise<ExitCode> {
  const widths: number[] = [];
  let part: LockInfo[] = [];
  let count = 0;
  const printPart = async () => {
    const isFirst = count === part.length;
    part.sort((one, other) => (one.key < other.key ? -1 : 1));
    const [header = '', ...lines] = tableLines([[...COLUMNS], ...part.map(rowOf)], widths);
    const shown = isFirst ? [terminal.paint('bold', header), ...lines] : lines;
    await terminal.print(shown.map((line) => `${line}\n`).join(''));
    part = [];
  };
  for await (const lock of listOf(namespace, args.subject ?? '')) {
    part.push(lock);
    count += 1;
    terminal.progress(count);
    if (part.length === PART) await printPart();
  }
  if (part.length > 0) await printPart();
  terminal.clearProgress();
  if (count === 0) {
    const where = `in the namespace "${namespace.name}"`;
    if (args.subject) terminal.say(`No lock is held ${where} with this prefix.${namespaceHint(args)}`);
    else terminal.say(`No lock is held ${where}.${await otherNamespacesHint(args, namespace)}`);
  }
  return ExitCode.done;
}
