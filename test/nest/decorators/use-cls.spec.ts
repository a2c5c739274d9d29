import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { compileLibrary } from '../../servers/compiled-library.js';

const PROGRAM = fileURLToPath(new URL('use-cls-program.mjs', import.meta.url));

it('@UseCls of nestjs-cls composes above and below, and above it feeds #{ctx…}', async () => {
  const library = await compileLibrary();
  try {
    const program = fork(PROGRAM, [library.folder], { execArgv: [] });
    const ended = once(program, 'exit');
    const [seen] = (await Promise.race([once(program, 'message'), ended])) as [unknown];
    expect(seen).toEqual(['acme:above for acme', 'all:below for acme']);
    // It ends by itself: nothing of ours keeps it alive.
    expect(await ended).toEqual([0, null]);
  } finally {
    await library.remove();
  }
}, 120_000);
