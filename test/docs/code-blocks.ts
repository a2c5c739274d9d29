import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** One block of TypeScript on a page, as a module of its own. */
export interface CodeBlock {
  /** The page and the line of the block, for messages. */
  readonly place: string;
  /** A file that does not exist, beside the package's own, so that imports resolve as those of its users do. */
  readonly file: string;
  readonly text: string;
}

// A hidden comment before a block declares what the block uses and does not show.
const BLOCK = /(?:<!-- ts:(?<hidden>.*?)-->\s*)?```ts\n(?<code>.*?)```/gs;
const IMPORT = /^import\s[^;]*?from\s+'[^']+';|^import\s+'[^']+';/gm;

/** All TypeScript blocks of the documentation. Imports of a page count for its later blocks, as they do for a reader. */
export function codeBlocks(): CodeBlock[] {
  const docs = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' });
  const pages = ['README.md', ...docs.filter((page) => page.endsWith('.md')).map((page) => join('docs', page))].sort();
  return pages.flatMap((page) => {
    const text = readFileSync(join(root, page), 'utf8');
    const known = new Map<string, string>();
    return Array.from(text.matchAll(BLOCK), ({ index, groups = {} }) => {
      const { hidden = '', code = '' } = groups;
      const line = text.slice(0, index).split('\n').length;
      const own = `${hidden}\n${code}`;
      const inherited = [...known].filter(([name]) => !new RegExp(`\\bimport\\b[^;]*\\b${name}\\b`).test(own));
      for (const [statement] of own.matchAll(IMPORT)) for (const name of namesOf(statement)) known.set(name, statement);
      const imports = inherited.map(([name, statement]) => single(name, statement));
      return {
        place: `${page}:${line}`,
        file: join(root, `docs-block-${page.replaceAll(/\W+/g, '-')}-${line}.ts`),
        text: [...imports, own, 'export {};'].join('\n'),
      };
    });
  });
}

/** The names that an import statement brings into scope. */
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

/** One name of an import statement as a statement of its own. */
function single(name: string, statement: string): string {
  const [, from = ''] = /from\s+('[^']+')/.exec(statement) ?? [];
  if (!new RegExp(`[{,]\\s*(?:type\\s+)?(?:\\w+\\s+as\\s+)?${name}\\s*[,}]`).test(statement)) return statement;
  const [found = name] = new RegExp(`(?:type\\s+)?(?:\\w+\\s+as\\s+)?${name}(?=\\s*[,}])`).exec(statement) ?? [];
  return `import { ${found} } from ${from};`;
}
