import { readFileSync } from 'node:fs';
import { safeText } from '../api/cause.js';
import { LockCapacityError, LockError, LockUnavailableError } from '../api/errors.js';
import { readArguments } from './arguments.js';
import { lookInWorkingDirectory } from './client-libraries.js';
import type { Command } from './command.js';
import { doctor } from './commands/doctor.js';
import { free } from './commands/free.js';
import { inspect } from './commands/inspect.js';
import { jobs } from './commands/jobs.js';
import { list } from './commands/list.js';
import { sql } from './commands/sql.js';
import { ExitCode, UsageError } from './exit-code.js';
import { commandHelp, generalHelp, PROGRAM } from './help.js';
import { type Namespace, openBackend } from './open-backend.js';
import { hasPassword, sourceOf } from './source.js';
import { Terminal } from './terminal.js';

const COMMANDS: Readonly<Record<string, Command>> = { list, inspect, jobs, free, doctor, sql };

/** Runs a command, and resolves to the process's exit code. */
export async function main(args: readonly string[], terminal = new Terminal()): Promise<ExitCode> {
  const [name = '', ...rest] = args;
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  try {
    if (command) return await runCommand(name, command, rest, terminal);
    await terminal.print(answerTo(name));
    return ExitCode.done;
  } catch (error) {
    return report(error, command ? `${PROGRAM} ${name}` : PROGRAM, terminal);
  }
}

/** @throws UsageError */
function answerTo(name: string): string {
  switch (name) {
    case '--help':
    case '-h':
    case 'help':
      return generalHelp(COMMANDS);
    case '--version':
    case '-v':
      return `${versionOfPackage()}\n`;
  }
  const names = Object.keys(COMMANDS).join(', ');
  const isMissing = name === '' || name.startsWith('-');
  throw new UsageError(
    `${isMissing ? 'The command is missing' : `Unknown command "${safeText(name)}"`}. Use one of ${names}.`,
  );
}

async function runCommand(
  name: string,
  command: Command,
  rest: readonly string[],
  terminal: Terminal,
): Promise<ExitCode> {
  const args = readArguments(rest, command);
  if (args.help) {
    await terminal.print(commandHelp(name, command));
    return ExitCode.done;
  }
  if ([args.url ?? '', args.subject ?? ''].some(hasPassword)) {
    terminal.warn('Other users on this machine can see the password in the process arguments. Set LOCK_URL instead.');
  }
  let namespace: Namespace | undefined;
  try {
    const open = async () => {
      lookInWorkingDirectory();
      return (namespace = await openBackend(sourceOf(args, process.env), args.namespace, terminal));
    };
    return await command.run({ args, terminal, open });
  } finally {
    await namespace?.backend.close();
  }
}

/** package.json is two folders up from both dist/esm and lib/cli. */
function versionOfPackage(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { readonly version: string }).version;
}

function report(error: unknown, program: string, terminal: Terminal): ExitCode {
  if (error instanceof UsageError) {
    terminal.error(`${error.message}\nHelp: ${program} --help`);
    return ExitCode.usage;
  }
  if (error instanceof LockError) {
    terminal.error(error.message);
    const isDown = error instanceof LockUnavailableError || error instanceof LockCapacityError;
    return isDown ? ExitCode.unavailable : ExitCode.usage;
  }
  terminal.error(safeText(error instanceof Error ? (error.stack ?? error.message) : String(error)));
  return ExitCode.unavailable;
}
