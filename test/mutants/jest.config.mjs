import { join } from 'node:path';
import config from '../../jest.config.js';

export default {
  ...config,
  rootDir: join(import.meta.dirname, '../..'),
  transform: { '\\.(ts|lua)$': '<rootDir>/test/mutants/transform.mjs' },
};
