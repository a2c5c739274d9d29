import { printable } from '../../api/printable.js';
import { systemClock } from '../../core/toolkit/clock.js';
import { type Command, connect, inspect as inspectKey, namespaceHint } from '../command.js';
import { ExitCode } from '../exit-code.js';
import { detailsOf } from '../lock-text.js';
import { tableLines } from '../table.js';

export const inspect: Command = {
  usesServer: true,
  subject: 'key',
  summary: 'Shows who holds a key, since when, and when it becomes free',
  async run(context) {
    const { args, terminal } = context;
    const { subject: key = '', json } = args;
    const namespace = await connect(context);
    const info = await inspectKey(namespace, key);
    if (json) await terminal.printJson(info);
    else if (info) await terminal.print(`${tableLines(detailsOf(info, systemClock.wallTime())).join('\n')}\n`);
    else
      await terminal.print(
        `"${printable(key)}" is free in the namespace "${printable(namespace.name)}".${namespaceHint(args)}\n`,
      );
    return info ? ExitCode.done : ExitCode.negative;
  },
};
