// Runs a command, and fails if it leaves a process or temporary file behind: node scripts/leave-nothing.mjs bash
// .ci/checks
import { RunFolder } from './run-folder.mjs';

const [command, ...args] = process.argv.slice(2);
const folder = new RunFolder();
const status = await folder.run(command, args, { stdio: 'inherit' });
const leftBehind = folder.leftBehind();
await folder.remove();
for (const each of leftBehind) console.error(`left behind: ${each}`);
process.exit(typeof status === 'number' && leftBehind.length === 0 ? status : 1);
