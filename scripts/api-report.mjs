import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, root } from './ensure-installed.mjs';

// The public API, name by name with its types, as users' compilers see it. A change of it has to be made on purpose:
// `npm run api` writes the report, `npm run api:check` (part of CI) fails when it differs.
ensureInstalled();
const { default: ts } = await import('typescript');

const check = process.argv.includes('--check');
const { exports: entries } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
let changed = false;
const emitted = new Map();
mkdirSync(join(root, 'api-report'), { recursive: true });
for (const [name, entry] of Object.entries(entries)) {
  if (typeof entry === 'string') continue;
  const source = join(root, entry.types.replace('./dist', 'lib').replace(/\.d\.ts$/, '.ts'));
  const file = join(root, 'api-report', `${name === '.' ? 'index' : name.slice(2)}.d.ts`);
  const report = reportOf(source);
  if (existsSync(file) && readFileSync(file, 'utf8') === report) continue;
  changed = true;
  if (check)
    console.error(
      `The public API of "${name}" differs from ${file.slice(root.length + 1)}: run "npm run api" and review the change.`,
    );
  else writeFileSync(file, report);
}
process.exit(check && changed ? 1 : 0);

/** The declarations of everything that the entry point exports, in alphabetical order and without comments. */
function reportOf(entryPoint) {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.build.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram([entryPoint], { ...options, removeComments: true });
  const checker = program.getTypeChecker();
  const module = checker.getSymbolAtLocation(program.getSourceFile(entryPoint));
  const declarations = new Map();
  for (const symbol of checker.getExportsOfModule(module)) {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    const texts = (target.declarations ?? []).flatMap((declaration) => declarationTexts(program, declaration));
    // The overloads of a function are several declarations of one name.
    declarations.set(symbol.name, [...new Set(texts)].join('\n'));
  }
  const names = [...declarations.keys()].sort();
  return `// Public API. Written by "npm run api"; do not edit.\n\n${names.map((name) => declarations.get(name)).join('\n\n')}\n`;
}

/** The declaration as the compiler emits it for users: inferred types written out, private parts left out. */
function declarationTexts(program, declaration) {
  const source = declaration.getSourceFile();
  if (!emitted.has(source.fileName)) {
    const keep = (_file, text) =>
      emitted.set(source.fileName, ts.createSourceFile('x.d.ts', text, ts.ScriptTarget.Latest, true));
    program.emit(source, keep, undefined, true);
  }
  const name = declaration.name.getText();
  const statements = emitted.get(source.fileName)?.statements ?? [];
  return statements
    .filter((statement) => {
      const declared = statement.declarationList?.declarations ?? [statement];
      return declared.some((each) => each.name?.getText() === name);
    })
    .map((statement) => statement.getText());
}
