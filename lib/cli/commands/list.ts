import { type Command, connect, namespaceHint, notOffered, otherNamespacesHint } from '../command.js';
import { ExitCode } from '../exit-code.js';
import { printListing } from '../listing.js';
import { COLUMNS, rowOf } from '../lock-text.js';

export const list: Command = {
  usesServer: true,
  subject: 'prefix',
  options: ['prefix'],
  summary: 'Lists the keys that are held or retained',
  details: 'With a prefix, lists only the keys that start with it.',
  async run(context) {
    const { args, terminal } = context;
    const namespace = await connect(context);
    const { name, backend } = namespace;
    const locks = backend.list?.({ prefix: args.subject ?? '' }) ?? notOffered(namespace, 'cannot list its locks');
    const count = await printListing(context, locks, { header: COLUMNS, cellsOf: rowOf, noun: 'locks' });
    if (count > 0 || args.json) return ExitCode.done;
    if (args.subject)
      terminal.say(`No locks with this prefix are held in the namespace "${name}".${namespaceHint(args)}`);
    else terminal.say(`No locks are held in the namespace "${name}".${await otherNamespacesHint(args, namespace)}`);
    return ExitCode.done;
  },
};
