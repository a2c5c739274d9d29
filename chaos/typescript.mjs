import { register } from 'node:module';

// The test servers are partly written in TypeScript, which Node 20 can't run.
register('./typescript-hooks.mjs', import.meta.url);
