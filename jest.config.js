import { join } from 'node:path';

// Another version of TypeORM or of Nest, when one is to be tested: the path of the module, and of the folder of its packages.
const { NESTJS, TYPEORM } = process.env;
const isLong = process.env.LOCK_TESTS_LONG === '1';

export default {
  // In the repository, because every run has a temporary folder of its own.
  cacheDirectory: join(import.meta.dirname, 'node_modules/.cache/jest'),
  testEnvironment: 'node',
  testSequencer: join(import.meta.dirname, 'scripts/test-sequencer.mjs'),
  testMatch: ['<rootDir>/test/**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts', '.lua'],
  transform: { '^.+\\.ts$': '@swc/jest', '\\.lua$': '<rootDir>/scripts/lua-modules.mjs' },
  moduleNameMapper: {
    '^(\\.{1,2}/.*\\.lua)\\.js$': '$1',
    '^(\\.{1,2}/.*)\\.js$': ['$1.ts', '$1.js'],
    ...(TYPEORM && { '^typeorm$': TYPEORM }),
    ...(NESTJS && { '^@nestjs/(.*)$': `${NESTJS}/$1` }),
  },
  // For a test that computes for less than a second, on a machine that is shared with servers: hangs are found all the same.
  testTimeout: isLong ? 1_800_000 : 60_000,
  // So is a worker that hangs at its end. One with a large heap takes seconds for its end while other work keeps the cores busy.
  workerGracefulExitTimeout: 30_000,
  // A worker never frees the modules of the files that it has run. Beyond this size, collecting garbage took a tenth of its time.
  workerIdleMemoryLimit: '300MB',
  coverageProvider: 'v8',
  collectCoverageFrom: ['lib/**/*.ts'],
  coverageThreshold: { global: { lines: 95, branches: 90 } },
};
