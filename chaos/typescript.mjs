import { register } from 'node:module';

// The tests' servers are partly written in TypeScript, which Node 20 cannot read.
register('./typescript-hooks.mjs', import.meta.url);
