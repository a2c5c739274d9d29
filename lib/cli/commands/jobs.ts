import type { ListedJob } from '../../api/lock-info.js';
import { printable } from '../../api/printable.js';
import { listedJob, parseRecord } from '../../core/job-record.js';
import { type Command, connect, namespaceHint, notOffered } from '../command.js';
import { printListing } from '../listing.js';
import { timeText, UNKNOWN } from '../lock-text.js';
import type { Namespace } from '../open-backend.js';

const COLUMNS = ['JOB', 'STATE', 'DUE', 'STARTED', 'ENDED', 'INSTANCE', 'ATTEMPT', 'SCHEDULE'];

export const jobs: Command = {
  usesServer: true,
  summary: 'Lists the latest run of each job',
  details: 'A job with minHold keeps no record. Instead, inspect shows its key as retained.',
  async run(context) {
    const namespace = await connect(context);
    const none = () => `There are no job records in the namespace "${namespace.name}".${namespaceHint(context.args)}`;
    return printListing(context, jobsOf(namespace), { header: COLUMNS, cellsOf, noun: 'jobs', none });
  },
};

async function* jobsOf(namespace: Namespace): AsyncGenerator<ListedJob> {
  const records = namespace.backend.records ?? notOffered(namespace, 'does not keep job records');
  for await (const { name, value } of records.list()) {
    const record = parseRecord(value);
    if (typeof record === 'object') yield listedJob(name, namespace.provider, record);
  }
}

function cellsOf({ key, state, tick, startedAt, endedAt, instance, attempt, schedule }: ListedJob): string[] {
  return [
    ...[printable(key), state, timeText(tick), timeText(startedAt), endedAt ? timeText(endedAt) : UNKNOWN],
    ...[printable(instance), String(attempt), printable(schedule ?? UNKNOWN)],
  ];
}
