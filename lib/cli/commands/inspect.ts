import { type Command, connect, freeText, inspect as inspectKey } from '../command.js';
import { ExitCode } from '../exit-code.js';
import { detailsText } from '../lock-text.js';

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
    else if (info) await terminal.print(detailsText(info));
    else await terminal.print(`${freeText(args, namespace)}\n`);
    return info ? ExitCode.done : ExitCode.negative;
  },
};
