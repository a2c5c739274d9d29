import type { LockInfo } from '../../api/lock-info.js';
import { printable } from '../../api/printable.js';
import { systemClock } from '../../core/toolkit/clock.js';
import { type Command, forceRelease, inspect, namespaceHint } from '../command.js';
import { ExitCode, Misuse } from '../exit-code.js';
import { detailsOf } from '../lock-text.js';
import { tableLines } from '../table.js';

export const free: Command = {
  shape: { subject: 'key', asks: true },
  usage: `free <key>

Shows who holds a key, asks, and takes the lock away. It does not stop the holder, which works on until it notices.

  --yes, -y         does not ask`,
  check({ yes }, terminal) {
    if (!yes && !terminal.isInteractive)
      throw new Misuse('free asks before it frees a key, and nobody can answer here. Use --yes.');
  },
  async run({ args, namespace, terminal }) {
    const { subject: key = '', json, yes } = args;
    const answer = async (was: LockInfo | null, freed: boolean, line: string) => {
      await (json ? terminal.printJson({ key, freed, was }) : terminal.print(`${line}\n`));
      return freed ? ExitCode.done : ExitCode.negative;
    };
    const name = `"${printable(key)}"`;
    const isFree = `${name} is free in the namespace "${namespace.name}".${namespaceHint(args)}`;
    const was = await inspect(namespace, key);
    if (!was) return answer(null, false, isFree);
    if (!json) await terminal.print(`${tableLines(detailsOf(was, systemClock.wallTime())).join('\n')}\n`);
    if (!yes) {
      if (!(await terminal.confirm(`Free ${name}? ${consequenceOf(was)} [y/N] `))) {
        return answer(was, false, 'Nothing was freed.');
      }
      const is = await inspect(namespace, key);
      if (!is) return answer(was, false, isFree);
      if (!isSameHold(was, is))
        return answer(is, false, `Nothing was freed: ${name} has another holder by now. Look again.`);
    }
    const freed = await forceRelease(namespace, key);
    return answer(was, freed, freed ? `${name} was freed.` : isFree);
  },
};

function consequenceOf({ state }: LockInfo): string {
  return state === 'retained'
    ? 'Its job has run, and may run once more.'
    : 'Its holder works on until it notices, beside the next one.';
}

/** Somebody who has agreed to free the lock of a process that hangs has not agreed to free that of the next one. */
function isSameHold(one: LockInfo, other: LockInfo): boolean {
  const idOf = ({ state, fencingToken, since, instances }: LockInfo) =>
    JSON.stringify([state, String(fencingToken), since, instances.toSorted()]);
  return idOf(one) === idOf(other);
}
