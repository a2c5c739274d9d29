import { parseArgs } from 'node:util';

/** What was asked for. Who asks for help gets `usage`, and so does, with status 2, who asks for what there is not. */
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
