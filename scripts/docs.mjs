import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { commandLine } from './command-line.mjs';
import { ensureInstalled, root, run } from './ensure-installed.mjs';
import { packageEntries } from './package-entries.mjs';

const { values } = commandLine(
  `npm run docs [-- --serve]

Builds the documentation with the API reference into .cache/docs/site.
  --serve   serves it on http://localhost:4173/`,
  { options: { serve: { type: 'boolean' } } },
);
ensureInstalled();
const work = join(root, '.cache/docs');
const pages = join(work, 'pages');
rmSync(work, { recursive: true, force: true });
collectPages();
await writeApiReference();

const { build, serve } = await import('vitepress');
await build(join(root, 'docs')).catch(({ message }) => {
  console.error(message);
  process.exit(1);
});
run(process.execPath, ['scripts/check-site.mjs', join(work, 'site')]);
if (values.serve) await serve({ root: join(root, 'docs') });
else console.log('The documentation is in .cache/docs/site. "npm run docs:serve" shows it.');

/**
 * Copies the repository's pages into the same folder structure, so that the links between them work. A README becomes
 * its folder's index.
 */
function collectPages() {
  for (const page of ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'docs'])
    if (existsSync(join(root, page))) cpSync(join(root, page), join(pages, page), { recursive: true });
  rmSync(join(pages, 'docs/.vitepress'), { recursive: true });
  const readmes = readdirSync(pages, { recursive: true }).filter((page) => basename(page) === 'README.md');
  for (const page of readmes) renameSync(join(pages, page), join(pages, dirname(page), 'index.md'));
}

/** Writes a page for each entry of the package, from its doc comments. A dead link in a comment is an error. */
async function writeApiReference() {
  const { Application } = await import('typedoc');
  const typedoc = await Application.bootstrapWithPlugins({
    plugin: ['typedoc-plugin-markdown'],
    entryPoints: packageEntries().map(({ source }) => join(root, source)),
    tsconfig: join(root, 'tsconfig.build.json'),
    out: join(pages, 'docs/api'),
    router: 'module',
    readme: 'none',
    entryFileName: 'entries',
    pageTitleTemplates: {
      module: ({ name }) => ['nestjs-distributed-lock', ...(name === 'index' ? [] : [name])].join('/'),
    },
    disableSources: true,
    excludeExternals: true, // members inherited from Nest and Error
    excludeInternal: true,
    excludePrivate: true,
    hideBreadcrumbs: true,
    hidePageHeader: true,
    useCodeBlocks: true,
    expandParameters: true,
    expandObjects: true,
    parametersFormat: 'table',
    interfacePropertiesFormat: 'table',
    typeDeclarationFormat: 'table',
    skipErrorChecking: true, // the compiler checks types
    validation: { invalidLink: true, notExported: false }, // scripts/api-report.mjs checks for these
    logLevel: 'Warn',
  });
  const project = await typedoc.convert();
  typedoc.validate(project);
  for (const entry of project.children) entry.name = basename(entry.name); // 'providers/redis' -> 'redis'
  await typedoc.generateOutputs(project);
  if (typedoc.logger.hasErrors() || typedoc.logger.hasWarnings()) process.exit(1);
  rmSync(join(pages, 'docs/api/entries.md')); // the sidebar lists them
  flattenRootEntry(join(pages, 'docs/api'));
}

/**
 * TypeDoc creates a folder for an entry that has namespaces. Turns the root into a single page, with its namespaces
 * next to it.
 */
function flattenRootEntry(folder) {
  renameSync(join(folder, 'index/entries.md'), join(folder, 'index.md'));
  renameSync(join(folder, 'index/namespaces'), join(folder, 'namespaces'));
  rmSync(join(folder, 'index'), { recursive: true });
  for (const page of readdirSync(folder, { recursive: true }).filter((file) => file.endsWith('.md'))) {
    const text = readFileSync(join(folder, page), 'utf8');
    const isNamespace = dirname(page) === 'namespaces';
    const links = isNamespace
      ? text.replaceAll('(../../', '(../')
      : text.replaceAll('(../', page === 'index.md' ? '(' : '(../');
    writeFileSync(
      join(folder, page),
      links
        .replaceAll('(index/entries.md', '(index.md')
        .replaceAll('(../entries.md', '(../index.md')
        .replaceAll('(index/namespaces/', '(namespaces/'),
    );
  }
}
