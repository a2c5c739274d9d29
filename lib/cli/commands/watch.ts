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
interface Frame {
  readonly at: Date;
  readonly locks: readonly LockInfo[];
  readonly count: number;
  readonly failure?: string;
}

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
    return { at: new Date(), locks: [], count: 0, failure: error.message };
  }
  locks.sort((one, other) => (one.key < other.key ? -1 : 1));
  return { at: new Date(), locks, count };
}

async function show(frame: Frame, { args, namespace, terminal }: CommandContext, isFirst: boolean): Promise<void> {
  const { at, locks, count, failure } = frame;
  if (args.json) {
    await terminal.print(`${JSON.stringify({ at, count, ...(failure && { failure }), locks: locks.map(withJson) })}\n`);
    return;
  }
  const title = `${at.toISOString().slice(11, 19)}Z  ${count} locked in "${namespace.name}"${args.subject ? ' with this prefix' : ''}`;
  const [header = '', ...rows] = tableLines([[...COLUMNS], ...locks.map(rowOf)]);
  const table = failure === undefined ? [header, ...rows] : [failure];
  if (!terminal.canRedraw) {
    await terminal.print(`${[title, ...table].join('\n')}\n\n`);
    return;
  }
  const { rows: height, columns } = terminal.size;
  // The last line stays empty, because a line break in it would scroll.
  const lines = [title, ...table].slice(0, Math.max(2, height - 2));
  const hidden = count - (lines.length - 2);
  if (failure === undefined && hidden > 0) lines.push(`and ${hidden} more`);
  const cut = lines.map((line) => Array.from(line).slice(0, columns).join(''));
  const painted = cut.map((line, index) => (index < 2 ? terminal.paint(index === 0 ? 'dim' : 'bold', line) : line));
  const screen = painted.map((line) => `${line}${CLEAR_LINE}\n`).join('');
  await terminal.print(`${isFirst ? `${HOME}${CLEAR_BELOW}` : HOME}${screen}${CLEAR_BELOW}`);
}
