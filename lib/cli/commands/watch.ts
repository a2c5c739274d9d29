import { setTimeout as pause } from 'node:timers/promises';
import { LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { monotonicNow } from '../../core/toolkit/real-timers.js';
import { withJson } from '../../core/toolkit/with-json.js';
import { type Command, type CommandContext, listOf } from '../command.js';
import { ExitCode, Misuse } from '../exit-code.js';
import { COLUMNS, rowOf } from '../lock-text.js';
import { tableLines } from '../table.js';

/** The least time from one list to the next, in ms. A list that takes longer is followed by a pause that is as long. */
const EVERY = 2_000;
/** More keys need a prefix, because each list reads all of them; and no more are kept in memory. */
const MOST = 1_000;

const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/** The locks at one time, or why they are not known. */
type Frame = { readonly at: Date } & (
  | { readonly locks: readonly LockInfo[]; readonly count: number; readonly failure?: undefined }
  | { readonly failure: string }
);

export const watch: Command = {
  shape: { subject: 'prefix' },
  usage: `watch [prefix]

Shows the keys that are held or retained, again every 2 s, until Ctrl-C. More than ${MOST} keys need a prefix.

  --prefix order:   the same as the argument`,
  async run(context) {
    const stop = new AbortController();
    const onSignal = () => {
      stop.abort();
    };
    process.once('SIGINT', onSignal).once('SIGTERM', onSignal);
    const stopped = new Promise<undefined>((resolve) => {
      stop.signal.addEventListener('abort', () => {
        resolve(undefined);
      });
    });
    try {
      for (let isFirst = true; ; isFirst = false) {
        const startedAt = monotonicNow();
        const reading = readFrame(context, isFirst);
        const frame = await Promise.race([reading, stopped]);
        if (!frame) {
          // Its failure is not of interest any more.
          reading.catch(() => undefined);
          return ExitCode.done;
        }
        await show(frame, context, isFirst);
        const took = monotonicNow() - startedAt;
        await pause(Math.max(EVERY - took, took), undefined, stop).catch(() => undefined);
        if (stop.signal.aborted) return ExitCode.done;
      }
    } finally {
      process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    }
  },
};

/** An outage that begins later is shown instead of the locks: it may end while somebody watches. */
async function readFrame({ args, namespace }: CommandContext, isFirst: boolean): Promise<Frame> {
  const locks: LockInfo[] = [];
  let count = 0;
  try {
    for await (const lock of listOf(namespace, args.subject ?? '')) {
      count += 1;
      if (count <= MOST) locks.push(lock);
      else if (!args.subject)
        throw new Misuse(`More than ${MOST} keys are locked. Give a prefix, such as: watch order:`);
    }
  } catch (error) {
    if (isFirst || !(error instanceof LockUnavailableError)) throw error;
    return { at: new Date(), failure: error.message };
  }
  locks.sort((one, other) => (one.key < other.key ? -1 : 1));
  return { at: new Date(), locks, count };
}

async function show(frame: Frame, { args, namespace, terminal }: CommandContext, isFirst: boolean): Promise<void> {
  if (args.json) {
    await terminal.printJson('locks' in frame ? { ...frame, locks: frame.locks.map(withJson) } : frame);
    return;
  }
  const { rows, columns } = terminal.size;
  const time = `${frame.at.toISOString().slice(11, 19)}Z`;
  if (!terminal.canRedraw) {
    await terminal.print(`${[`${time}  ${titleOf(frame, namespace.name)}`, ...tableOf(frame, MOST)].join('\n')}\n\n`);
    return;
  }
  // Four lines are for the title, the header, the locks that have no room, and an empty one, since a line break in the last line would scroll.
  const [header = '', ...others] = tableOf(frame, Math.max(1, rows - 4));
  const cut = (line: string) => Array.from(line).slice(0, columns).join('');
  const lines = [
    terminal.paint('dim', cut(`${time}  ${titleOf(frame, namespace.name)}`)),
    terminal.paint('bold', frame.failure === undefined ? cut(header) : header),
    ...others.map(cut),
  ];
  const screen = lines.map((line) => `${line}${CLEAR_LINE}\n`).join('');
  await terminal.print(`${HOME}${isFirst ? CLEAR_BELOW : ''}${screen}${CLEAR_BELOW}`);
}

function titleOf(frame: Frame, namespace: string): string {
  return frame.failure === undefined
    ? `${frame.count} locked in "${namespace}"`
    : `The locks in "${namespace}" are not known.`;
}

/** The header and the first rows, or the failure. */
function tableOf(frame: Frame, most: number): string[] {
  if (frame.failure !== undefined) return [frame.failure];
  const { locks, count } = frame;
  const lines = tableLines([[...COLUMNS], ...locks.slice(0, most).map(rowOf)]);
  return count > most ? [...lines, `and ${count - most} more`] : lines;
}
