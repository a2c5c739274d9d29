import { type Command, connect, namespaceHint, notOffered, otherNamespacesHint } from '../command.js';
import { printListing } from '../listing.js';
import { COLUMNS, rowOf } from '../lock-text.js';

export const list: Command = {
  usesServer: true,
  subject: 'prefix',
  options: ['prefix'],
  summary: 'Lists the keys that are held or retained',
  details: 'With a prefix, lists only the keys that start with it.',
  async run(context) {
    const { args } = context;
    const namespace = await connect(context);
    const { name, backend } = namespace;
    const locks = backend.list?.({ prefix: args.subject ?? '' }) ?? notOffered(namespace, 'cannot list its locks');
    const none = async () =>
      args.subject
        ? `No locks with this prefix are held in the namespace "${name}".${namespaceHint(args)}`
        : `No locks are held in the namespace "${name}".${await otherNamespacesHint(args, namespace)}`;
    return printListing(context, locks, { header: COLUMNS, cellsOf: rowOf, noun: 'locks', none });
  },
};
