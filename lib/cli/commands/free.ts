import type { LockInfo } from '../../api/lock-info.js';
import { printable } from '../../api/printable.js';
import { type Command, connect, forceRelease, freeText, inspect } from '../command.js';
import { ExitCode, UsageError } from '../exit-code.js';
import { detailsText } from '../lock-text.js';

export const free: Command = {
  usesServer: true,
  subject: 'key',
  options: ['yes'],
  summary: 'Frees a key',
  details: 'Shows who holds the key and asks for confirmation. The holder keeps working until it notices the loss.',
  async run(context) {
    const { args, terminal } = context;
    const { subject: key = '', json, yes } = args;
    if (!yes && !terminal.isInteractive)
      throw new UsageError('free asks for confirmation, which requires a terminal. Use --yes.');
    const namespace = await connect(context);
    const answer = async (was: LockInfo | null, freed: boolean, line: string) => {
      await (json ? terminal.printJson({ key, freed, was }) : terminal.print(`${line}\n`));
      return freed ? ExitCode.done : ExitCode.negative;
    };
    const name = `"${printable(key)}"`;
    const isFree = freeText(args, namespace);
    const was = await inspect(namespace, key);
    if (!was) return answer(null, false, isFree);
    if (!json) await terminal.print(detailsText(was));
    if (!yes) {
      if (!(await terminal.confirm(`Free ${name}? ${consequenceOf(was)} [y/N] `))) {
        return answer(was, false, 'Nothing was freed.');
      }
      const is = await inspect(namespace, key);
      if (!is) return answer(was, false, isFree);
      if (!isSameHold(was, is))
        return answer(is, false, `Nothing was freed: ${name} has a new holder. Run the command again to see it.`);
    }
    const freed = await forceRelease(namespace, key);
    return answer(was, freed, freed ? `${name} was freed.` : isFree);
  },
};

function consequenceOf({ state }: LockInfo): string {
  return state === 'retained'
    ? 'Its job has already run, but could run again.'
    : 'Until its holder notices, two holders can be running at once.';
}

/** Whether the holder is still the one the user agreed to evict. It may have changed while the prompt was open. */
function isSameHold(one: LockInfo, other: LockInfo): boolean {
  const idOf = ({ state, fencingToken, since, instances }: LockInfo) =>
    JSON.stringify([state, String(fencingToken), since, instances.toSorted()]);
  return idOf(one) === idOf(other);
}
