export default {
  testEnvironment: 'node',
  testMatch: ['<rootDir>/test/**/*.spec.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: { '^.+\\.ts$': '@swc/jest' },
  moduleNameMapper: { '^(\\.{1,2}/.*)\\.js$': ['$1.ts', '$1.js'] },
  coverageProvider: 'v8',
  collectCoverageFrom: ['lib/**/*.ts'],
  coverageThreshold: { global: { lines: 95, branches: 90 } },
};
