import { printable } from '../../api/printable.js';
import { systemClock } from '../../core/toolkit/clock.js';
import { type Command, inspect as inspectKey } from '../command.js';
import { ExitCode } from '../exit-code.js';
import { detailsOf } from '../lock-text.js';
import { tableLines } from '../table.js';

export const inspect: Command = {
  shape: { subject: 'key' },
  usage: `inspect <key>

Shows who holds a key, since when, and when it becomes free.`,
  async run({ args: { subject: key = '', json }, namespace, terminal }) {
    const info = await inspectKey(namespace, key);
    if (json) await terminal.print(`${JSON.stringify(info)}\n`);
    else if (info) await terminal.print(`${tableLines(detailsOf(info, systemClock.wallTime())).join('\n')}\n`);
    else await terminal.print(`"${printable(key)}" is free in the namespace "${namespace.name}".\n`);
    return info ? ExitCode.done : ExitCode.negative;
  },
};
