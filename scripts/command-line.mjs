import { parseArgs } from 'node:util';

/**
 * Parses the arguments. With `--help`, prints `usage` and exits with status 0; with an unknown argument, with status 2.
 */
export function commandLine(usage, { options, ...rest }) {
  try {
    const { values, positionals } = parseArgs({
      options: { ...options, help: { type: 'boolean', short: 'h' } },
      ...rest,
    });
    if (!values.help) return { values, positionals };
  } catch (error) {
    refuse(`${error.message}\n\n${usage}`);
  }
  console.log(usage);
  process.exit(0);
}

export function refuse(why) {
  console.error(why);
  process.exit(2);
}
