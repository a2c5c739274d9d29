import { safeText } from '../api/cause.js';
import { LockCapacityError, LockError, LockUnavailableError } from '../api/errors.js';
import { type Arguments, readArguments } from './arguments.js';
import { lookInWorkingDirectory } from './client-libraries.js';
import type { Command } from './command.js';
import { doctor } from './commands/doctor.js';
import { free } from './commands/free.js';
import { inspect } from './commands/inspect.js';
import { list } from './commands/list.js';
import { ExitCode, Misuse } from './exit-code.js';
import { openBackend } from './open-backend.js';
import { Terminal } from './terminal.js';

const COMMANDS = new Map<string, Command>(Object.entries({ list, inspect, free, doctor }));

const COMMON = `The server, by --url, --config or the environment variable LOCK_URL:
  --url redis://user@host:6379            or rediss://
  --url postgres://user@host/shop         locks of SqlVersionLockProvider and TypeOrmVersionLockProvider. Row and
  --url mysql://user@host/shop            advisory locks belong to sessions: look for them in the database
  --url zookeeper://zk1:2181,zk2:2181/chroot
  --config lock.config.mjs                a file whose default export is a lock provider: Cluster, Sentinel, TLS, ACLs
Put passwords in LOCK_URL or the file: other users of the machine can see arguments.

Options:
  --namespace shop  the namespace of the application. Default: lock, or the export "namespace" of the file
  --table app.locks the table of SQL locks. Default: distributed_lock
  --json            for programs
  --help, -h

Exit codes: 0 done; 1 the key is free, nothing was freed, or doctor found something, such as a refused connection;
2 wrong use, or the server refused; 3 the server does not answer.`;

const USAGE = `usage: npx nestjs-distributed-lock <command> [options]

  list [prefix]     shows the keys that are locked
  inspect <key>     shows who holds a key, and since when
  free <key>        frees a key
  doctor            looks for settings that weaken the guarantee
  sql               prints the statements that create the tables of SQL locks

${COMMON}`;

/** Runs a command to its end. Resolves to the exit code of the process. */
export async function main(args: readonly string[], terminal = new Terminal()): Promise<ExitCode> {
  const [name = '', ...rest] = args;
  const command = COMMANDS.get(name);
  if (command) return runCommand(command, rest, terminal);
  if (name === '--help' || name === '-h' || name === 'help') {
    await terminal.print(`${USAGE}\n`);
    return ExitCode.done;
  }
  const reason =
    name === '' || name.startsWith('-') ? 'A command is missing.' : `There is no command "${safeText(name)}".`;
  terminal.say(`${reason}\n\n${USAGE}`);
  return ExitCode.misuse;
}

async function runCommand(command: Command, rest: readonly string[], terminal: Terminal): Promise<ExitCode> {
  const usage = `usage: npx nestjs-distributed-lock ${command.usage}\n\n${COMMON}`;
  let args: Arguments | 'help';
  try {
    args = readArguments(rest, command.shape, process.env);
  } catch (error) {
    if (!(error instanceof Misuse)) throw error;
    terminal.say(`${error.message}\n\n${usage}`);
    return ExitCode.misuse;
  }
  if (args === 'help') {
    await terminal.print(`${usage}\n`);
    return ExitCode.done;
  }
  try {
    if (args.showsPassword) {
      terminal.warn(
        'Other users of this machine can see the password, because it is in the arguments of this process. Put the address in LOCK_URL instead.',
      );
    }
    command.check?.(args, terminal);
    lookInWorkingDirectory();
    const namespace = await openBackend(args.source, args.namespace, terminal);
    try {
      if (command !== doctor) await namespace.backend.connect();
      return await command.run({ args, namespace, terminal });
    } finally {
      await namespace.backend.close();
    }
  } catch (error) {
    return report(error, terminal);
  }
}

function report(error: unknown, terminal: Terminal): ExitCode {
  if (error instanceof LockError) {
    terminal.error(error.message);
    const isDown = error instanceof LockUnavailableError || error instanceof LockCapacityError;
    return isDown ? ExitCode.unavailable : ExitCode.misuse;
  }
  if (error instanceof Misuse) {
    terminal.error(error.message);
    return ExitCode.misuse;
  }
  terminal.error(safeText(error instanceof Error ? (error.stack ?? error.message) : String(error)));
  return ExitCode.unavailable;
}
