import { register } from 'node:module';

// The servers of the tests are partly written in TypeScript, which Node 20 cannot run.
register('./typescript-hooks.mjs', import.meta.url);
