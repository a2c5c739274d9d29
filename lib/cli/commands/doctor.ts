import { LockConfigError } from '../../api/errors.js';
import type { Diagnostic } from '../../api/lock-provider.js';
import type { Command } from '../command.js';
import { ExitCode } from '../exit-code.js';

export const doctor: Command = {
  usesServer: true,
  summary: 'Finds settings of the server that weaken the guarantee',
  details: 'Says what to do about each, as an application does at every start. It acquires no lock.',
  async run({ args: { json }, terminal, open }) {
    const { name, provider, backend } = await open();
    const findings = await diagnose(async () => {
      await backend.connect();
      return (await backend.diagnose?.()) ?? [];
    });
    if (json) await terminal.printJson({ provider, namespace: name, findings });
    else {
      for (const { severity, message } of findings) {
        const color = severity === 'error' ? 'red' : 'yellow';
        await terminal.print(`${terminal.paint(color, severity)}: ${message}\n`);
      }
      if (findings.length === 0) await terminal.print(`${provider} found nothing that weakens its guarantee.\n`);
    }
    return findings.length > 0 ? ExitCode.negative : ExitCode.done;
  },
};

/** A refusal of the server at the start is a finding as well, such as a table that is missing. */
async function diagnose(look: () => Promise<readonly Diagnostic[]>): Promise<readonly Diagnostic[]> {
  try {
    return await look();
  } catch (error) {
    if (!(error instanceof LockConfigError)) throw error;
    return [{ severity: 'error', message: error.message }];
  }
}
