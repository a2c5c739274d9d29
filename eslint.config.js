import { createNodeResolver, importX } from 'eslint-plugin-import-x';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'quick-start', '.cache', 'coverage', 'sample-app/dist', '**/node_modules'] },
  {
    // Programs of plain JavaScript: no types to check, but promises are known, and so are the names that Node has.
    files: ['**/*.mjs'],
    extends: [tseslint.configs.strict],
    languageOptions: {
      parserOptions: { project: './tsconfig.programs.json', tsconfigRootDir: import.meta.dirname },
      globals: Object.fromEntries(Object.getOwnPropertyNames(globalThis).map((name) => [name, 'readonly'])),
    },
    plugins: { 'import-x': importX },
    settings: { 'import-x/resolver-next': [createNodeResolver({ extensionAlias: { '.js': ['.ts', '.js'] } })] },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      // An async listener that fails ends its program, by Node's own rule, and that is what its parent has to see.
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { arguments: false } }],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/prefer-promise-reject-errors': 'error',
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      // Modules of Nest, decorated by a call.
      '@typescript-eslint/no-extraneous-class': ['error', { allowEmpty: true }],
      'no-undef': 'error',
      'no-unreachable': 'error',
      'no-self-assign': 'error',
      'no-unused-private-class-members': 'error',
      'no-useless-assignment': 'error',
      'import-x/no-cycle': 'error',
      'import-x/named': 'error',
    },
  },
  {
    files: ['**/*.test.mjs'],
    languageOptions: { globals: { it: 'readonly' } },
  },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // A promise that nobody awaits is a lock that nobody releases.
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { arguments: true } }],
      '@typescript-eslint/consistent-type-imports': [
        'error',
        { fixStyle: 'inline-type-imports', disallowTypeAnnotations: false },
      ],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      // Modules of Nest are empty classes.
      '@typescript-eslint/no-extraneous-class': ['error', { allowWithDecorator: true }],
      // Nest declares its options as classes and takes plain objects for them.
      '@typescript-eslint/no-unsafe-class-instance-assignment': 'off',
      // A user's own error is passed on as it came, whatever it is.
      '@typescript-eslint/only-throw-error': 'off',
      '@typescript-eslint/prefer-promise-reject-errors': 'off',
    },
  },
  {
    // Prettier wraps code, but not comments.
    files: ['lib/**/*.ts'],
    rules: {
      'max-len': ['error', { code: 10_000, comments: 120, ignoreUrls: true, ignorePattern: '@example|eslint-' }],
    },
  },
  {
    // Tests say what they mean with less ceremony: doubles without methods' bodies, private members, unawaited expectations of Jest.
    files: ['test/**/*.ts'],
    rules: {
      '@typescript-eslint/no-empty-function': 'off',
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/no-confusing-void-expression': 'off',
      '@typescript-eslint/no-extraneous-class': 'off',
    },
  },
  {
    // Sources in all the forms that users write, for what reads them: the parser of parameter names, the compiler.
    files: ['test/types/**/*.ts', 'test/key/parameter-names.spec.ts'],
    rules: {
      '@typescript-eslint/no-unnecessary-type-parameters': 'off',
      '@typescript-eslint/no-unnecessary-type-arguments': 'off',
      '@typescript-eslint/no-unnecessary-template-expression': 'off',
      '@typescript-eslint/no-meaningless-void-operator': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
    },
  },
);
