import { type OptionName, OPTIONS, optionsOf, SERVER_OPTIONS } from './arguments.js';
import type { Command } from './command.js';
import { tableLines } from './table.js';

export const PROGRAM = 'npx nestjs-distributed-lock';

const OF_SERVER = `Options for commands that use a server:
${optionLines(SERVER_OPTIONS)}

Put passwords in LOCK_URL or the config file, because other users on the machine can see arguments. SQL row and
advisory locks belong to database sessions, and only the database can show them.

Exit codes: 0 done; 1 the key is free, nothing was freed, or doctor found something, such as a rejected connection;
2 usage error, or the server rejected the command; 3 the server does not respond.`;

export function generalHelp(commands: Readonly<Record<string, Command>>): string {
  const rows = Object.entries(commands).map(([name, command]) => [`  ${callOf(name, command)}`, command.summary]);
  return `usage: ${PROGRAM} <command> [options]

${tableLines([...rows, ['  --version, -v', 'Prints the version of the package']]).join('\n')}

${OF_SERVER}
`;
}

export function commandHelp(name: string, command: Command): string {
  const { usesServer, options = [], summary, details } = command;
  const own = usesServer ? options : optionsOf(command);
  return [
    `usage: ${PROGRAM} ${callOf(name, command)} [options]`,
    `${summary}.${details === undefined ? '' : `\n${details}`}`,
    ...(own.length > 0 ? [optionLines(own)] : []),
    ...(usesServer ? [OF_SERVER] : []),
  ]
    .join('\n\n')
    .concat('\n');
}

function callOf(name: string, { subject }: Command): string {
  if (subject === undefined) return name;
  return subject === 'key' ? `${name} <key>` : `${name} [${subject}]`;
}

function optionLines(names: readonly OptionName[]): string {
  const rows = names.flatMap((name) => {
    const { value, short, help }: { value?: string; short?: string; help: string } = OPTIONS[name];
    const [first = '', ...others] = help.split('\n');
    const option = `  --${name}${short === undefined ? '' : `, -${short}`}${value === undefined ? '' : ` ${value}`}`;
    return [[option, first], ...others.map((line) => ['', line])];
  });
  return tableLines(rows).join('\n');
}
