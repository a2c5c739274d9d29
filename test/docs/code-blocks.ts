import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** A TypeScript block of a page, as a separate module. */
export interface CodeBlock {
  /** The page and line of the block, for messages. */
  readonly place: string;
  /** A nonexistent file next to the package's own files, so that its imports resolve as they do for users. */
  readonly file: string;
  readonly text: string;
  /** What a reader sees, plus the imports of earlier blocks of the page. */
  readonly visible: string;
  /** Whether `text` ends with code that starts and uses the block's declarations. */
  readonly isUsed: boolean;
  /** Why the tests only compile the block. */
  readonly notRun: string | undefined;
  /** Classes that the block only declares, with the earlier block that exports them. */
  readonly borrowed: ReadonlyMap<string, CodeBlock>;
  /** Blocks of the page that this one imports as files, by the specifiers in `text`. */
  readonly imported: ReadonlyMap<string, CodeBlock>;
}

// Hidden comments before a block: `ts` defines what the block uses but doesn't show, `then` uses what the block
// defines, and `not run` gives the reason why the tests only compile it. A `ts` comment that starts with `//
// app.module.ts` is that file of the reader's application, and this and later blocks can import it. A name without
// dots, such as `// murlock.ts`, stands for a package that isn't installed.
const BLOCK = /(?<comments>(?:<!-- (?:ts|then|not run):(?:(?!-->).)*-->\s*)*)```ts\n(?<code>.*?)```/gs;
const COMMENT = /<!-- (?<kind>ts|then|not run):(?<content>.*?)-->/gs;
const DECLARED = /\bdeclare class (\w+)/g;
const EXPORTED = /\bexport class (\w+)/g;
const FILE_NAME = /^\s*\/\/ ([\w.-]+)\.ts\n/;
const IMPORTED_FILE = /(?<=from ')(?:\.\/([\w.-]+)\.js|([\w-]+))(?=')/g;
const IMPORT = /^import\s[^;]*?from\s+'[^']+';|^import\s+'[^']+';/gm;
const STAGE = `import { balanceAfter, lateDeposit, start, sqlite, stub } from './test/docs/stage.js';`;

/**
 * Returns all TypeScript blocks of the documentation. A page's imports also apply to its later blocks, as a reader
 * would expect. A block that starts with a comment such as `// order.service.ts` is that file for later blocks.
 */
export function codeBlocks(): CodeBlock[] {
  const docs = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' });
  const pages = ['README.md', ...docs.filter((page) => page.endsWith('.md')).map((page) => join('docs', page))].sort();
  return pages.flatMap((page) => {
    const text = readFileSync(join(root, page), 'utf8');
    const known = new Map<string, string>();
    const seen = new Map<string, string>();
    const exported = new Map<string, CodeBlock>();
    const files = new Map<string, CodeBlock>();
    return Array.from(text.matchAll(BLOCK), ({ 0: all, index, groups = {} }) => {
      const { comments = '', code = '' } = groups;
      const hidden = Array.from(comments.matchAll(COMMENT), (comment) => comment.groups ?? {});
      const contentOf = (kind: string) =>
        hidden.find(({ kind: each, content = '' }) => each === kind && !FILE_NAME.test(content))?.['content'];
      const then = contentOf('then');
      const line = text.slice(0, index + all.indexOf('```ts')).split('\n').length;
      for (const { content = '' } of hidden) {
        const [, name] = FILE_NAME.exec(content) ?? [];
        if (name !== undefined) files.set(name, hiddenFile(page, name, linked(content, files)));
      }
      const own = [contentOf('ts'), code, then].join('\n');
      const borrowed = Array.from(own.matchAll(DECLARED), ([, name = '']) => [name, exported.get(name)] as const);
      const stage = then === undefined ? [] : [STAGE];
      const moduleOf = (part: string, imports: Map<string, string>) =>
        linked([...inheritedBy(part, imports), part, 'export {};'].join('\n'), files);
      const { text: body, imported } = moduleOf(own, known);
      const block: CodeBlock = {
        place: `${page}:${line}`,
        file: pathOf(page, `${line}`),
        text: [...stage, body].join('\n'),
        visible: moduleOf(code, seen).text,
        isUsed: then !== undefined,
        notRun: contentOf('not run')?.trim(),
        borrowed: new Map(borrowed.flatMap(([name, from]) => (from ? [[name, from]] : []))),
        imported,
      };
      addImports(known, own);
      addImports(seen, code);
      const [, fileName] = FILE_NAME.exec(code) ?? [];
      if (fileName !== undefined) files.set(fileName, block);
      for (const [, name = ''] of code.matchAll(EXPORTED)) exported.set(name, block);
      return block;
    });
  });
}

/** A nonexistent file next to the package's own files. */
function pathOf(page: string, name: string): string {
  return join(root, `docs-block-${page.replaceAll(/\W+/g, '-')}-${name}.ts`);
}

function hiddenFile(page: string, name: string, { text, imported }: Linked): CodeBlock {
  const [place, file] = [`${page}: ${name}.ts`, pathOf(page, name)];
  return { place, file, text, visible: text, isUsed: false, notRun: undefined, borrowed: new Map(), imported };
}

type Linked = Pick<CodeBlock, 'text' | 'imported'>;

/** Rewrites imports of the page's files to their paths. */
function linked(code: string, files: ReadonlyMap<string, CodeBlock>): Linked {
  const imported = new Map<string, CodeBlock>();
  const text = code.replaceAll(IMPORTED_FILE, (specifier, name?: string, otherPackage?: string) => {
    const from = files.get(name ?? otherPackage ?? '');
    if (!from) return specifier;
    const module = `./${basename(from.file).replace(/\.ts$/, '.js')}`;
    imported.set(module, from);
    return module;
  });
  return { text, imported };
}

/** Returns the earlier imports that this code needs because it uses a name that it neither imports nor declares. */
function inheritedBy(code: string, imports: ReadonlyMap<string, string>): string[] {
  const isNeeded = (name: string) =>
    new RegExp(`\\b${name}\\b`).test(code) &&
    !new RegExp(`\\bimport\\b[^;]*\\b${name}\\b|\\b(?:class|const|function|interface) ${name}\\b`).test(code);
  return [...imports].filter(([name]) => isNeeded(name)).map(([name, statement]) => single(name, statement));
}

function addImports(imports: Map<string, string>, code: string): void {
  for (const [statement] of code.matchAll(IMPORT)) for (const name of namesOf(statement)) imports.set(name, statement);
}

/** Returns the names that an import statement introduces. */
function namesOf(statement: string): string[] {
  const [, list = ''] = /\{([^}]*)\}/.exec(statement) ?? [];
  const named = list.split(',').map((each) =>
    each
      .replace(/^\s*type\s/, '')
      .split(/\sas\s/)
      .at(-1)!
      .trim(),
  );
  const [, other] = /^import\s+(?:type\s+)?(?:\*\s+as\s+)?(\w+)/.exec(statement) ?? [];
  return [...named, other === 'type' ? '' : (other ?? '')].filter((name) => name !== '' && name !== 'from');
}

/** Returns an import statement for a single name. */
function single(name: string, statement: string): string {
  const [, from = ''] = /from\s+('[^']+')/.exec(statement) ?? [];
  if (!new RegExp(`[{,]\\s*(?:type\\s+)?(?:\\w+\\s+as\\s+)?${name}\\s*[,}]`).test(statement)) return statement;
  const [found = name] = new RegExp(`\\b(?:type\\s+)?(?:\\w+\\s+as\\s+)?${name}(?=\\s*[,}])`).exec(statement) ?? [];
  return `${/^import\s+type\s/.test(statement) ? 'import type' : 'import'} { ${found} } from ${from};`;
}
