import { LockConfigError } from '../../api/errors.js';
import type { Diagnostic } from '../../api/lock-provider.js';
import type { Command } from '../command.js';
import { ExitCode } from '../exit-code.js';

export const doctor: Command = {
  usesServer: true,
  summary: 'Finds server settings that weaken the guarantee',
  details: 'Suggests a fix for each, as the application does at startup. Never acquires a lock.',
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

/** Also reports connection-time rejections, such as a missing table, as findings. */
async function diagnose(findProblems: () => Promise<readonly Diagnostic[]>): Promise<readonly Diagnostic[]> {
  try {
    return await findProblems();
  } catch (error) {
    if (!(error instanceof LockConfigError)) throw error;
    return [{ severity: 'error', message: error.message }];
  }
}
