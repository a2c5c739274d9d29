import type { Finding, LockCapabilities } from '../../api/lock-provider.js';
import type { FailoverSettings } from './failover-options.js';

/** What weakens the guarantee of several engines as one. */
export function findings(
  { mode, engines, record }: FailoverSettings,
  capabilitiesOf: (engine: string) => LockCapabilities,
): readonly Finding[] {
  if (mode === 'available') {
    return [
      warning(`mode 'available' lets two processes hold one lock around a switch: use it to avoid work, not damage.`),
    ];
  }
  const found = (['shared', 'fencing'] as const).flatMap((capability) => {
    const lacking = engines.filter((name) => !capabilitiesOf(name)[capability]);
    return lacking.length === 0 || lacking.length === engines.length
      ? []
      : [warning(`there are no ${NAMES[capability]} on any engine, since ${quoted(lacking)} has none.`)];
  });
  if (record !== undefined && engines.includes(record)) {
    found.push(
      warning(
        `losing "${record}" stops all locks, since the record is kept there too: name a third provider as "record" to survive the loss of any one.`,
      ),
    );
  }
  return found;
}

const NAMES = { shared: 'shared locks', fencing: 'fencing tokens' };

function quoted(names: readonly string[]): string {
  return names.map((name) => `"${name}"`).join(', ');
}

function warning(message: string): Finding {
  return { severity: 'warning', message };
}
