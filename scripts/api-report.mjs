import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ensureBuilt } from './build.mjs';
import { ensureInstalled, root } from './ensure-installed.mjs';
import { packageEntries } from './package-entries.mjs';

// One report for each entry of the package, as users' compilers see it. `npm run api` writes the reports to api-report/
// and updates the generated parts of the documentation. `npm run api:check` fails if one of them is outdated, so that
// every change to the public API is reviewed. Both commands fail if users see a type they can't import, if two entries
// export the same name, and if a comment names a different default than the code.
ensureInstalled();
ensureBuilt();
const { CompilerState, Extractor, ExtractorConfig, ExtractorLogLevel } = await import('@microsoft/api-extractor');
const { stalePages } = await import('./reference/pages.mjs');
const { wrongDefaults } = await import('./reference/option-defaults.mjs');

const check = process.argv.includes('--check');
const reviewed = join(root, 'api-report');
const fresh = join(root, '.cache/api-report');
rmSync(fresh, { recursive: true, force: true });
for (const folder of [reviewed, fresh]) mkdirSync(folder, { recursive: true });

const configs = packageEntries().map(extractorConfig);
const compilerState = CompilerState.create(configs[0], {
  additionalEntryPoints: configs.map(({ mainEntryPointFilePath }) => mainEntryPointFilePath),
});
const hidden = []; // types that an entry uses but doesn't export
const results = configs.map((config) => {
  const messageCallback = (message) => onMessage(message, basename(config.reportFilePath, '.api.md'));
  return Extractor.invoke(config, { compilerState, localBuild: true, messageCallback });
});
if (results.some(({ succeeded }) => !succeeded)) process.exit(1);

const [before, after] = [reviewed, fresh].map(textsOf);
const stale = [...new Set([...before.keys(), ...after.keys()])].filter((file) => before.get(file) !== after.get(file));
for (const file of stale) {
  if (check)
    console.error(
      `The public API differs from api-report/${file}. Run "npm run api", review the difference, and commit it.`,
    );
  else if (after.has(file)) writeFileSync(join(reviewed, file), after.get(file));
  else rmSync(join(reviewed, file)); // the report of a removed entry
}

const pages = stalePages();
for (const { page, text } of pages) {
  if (check) console.error(`${page} differs from the code. Run "npm run api", review the difference, and commit it.`);
  else writeFileSync(join(root, page), text);
}
const faults = [...faultsOfEntries(), ...wrongDefaults()];
for (const fault of faults) console.error(fault);
process.exit(faults.length > 0 || (check && pages.length + stale.length > 0) ? 1 : 0);

/** What API Extractor would read from a configuration file for one entry. */
function extractorConfig({ name, types }) {
  return ExtractorConfig.prepare({
    packageJsonFullPath: join(root, 'package.json'),
    configObject: {
      projectFolder: root,
      mainEntryPointFilePath: join(root, types),
      compiler: {
        overrideTsconfig: { extends: './tsconfig.build.json', compilerOptions: { rootDir: '.' }, files: [types] },
      },
      newlineKind: 'lf',
      apiReport: { enabled: true, reportFileName: `${name}.api.md`, reportFolder: fresh, reportTempFolder: fresh },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
      messages: {
        compilerMessageReporting: { default: { logLevel: ExtractorLogLevel.Error } },
        extractorMessageReporting: {
          default: { logLevel: ExtractorLogLevel.Error },
          'ae-forgotten-export': { logLevel: ExtractorLogLevel.Warning }, // see onMessage
          'ae-missing-release-tag': { logLevel: ExtractorLogLevel.None }, // whatever isn't public is `@internal`
          'ae-undocumented': { logLevel: ExtractorLogLevel.None }, // the report shows it
          'ae-unresolved-link': { logLevel: ExtractorLogLevel.None }, // `npm run docs` checks links across entries
        },
        tsdocMessageReporting: {
          default: { logLevel: ExtractorLogLevel.None, addToApiReportFile: true },
          'tsdoc-param-tag-missing-hyphen': { logLevel: ExtractorLogLevel.None },
        },
      },
    },
  });
}

function onMessage(message, entry) {
  if (message.messageId === 'ae-forgotten-export') {
    const [, type] = /"(.+?)"/.exec(message.text) ?? [];
    hidden.push({ entry, type });
  }
  // Messages below the level of an error only report progress: the compiler used, or that a report is new.
  if (message.logLevel !== ExtractorLogLevel.Error) message.handled = true;
}

/**
 * Types that users see but can't import, and names that they could import from two entries. API Extractor examines only
 * one entry at a time.
 */
function faultsOfEntries() {
  const entriesOf = new Map();
  for (const [file, report] of textsOf(fresh)) {
    const entry = basename(file, '.api.md');
    for (const [, name] of report.matchAll(/^export (?:abstract )?\w+ (\w+)/gm)) {
      entriesOf.set(name, (entriesOf.get(name) ?? new Set()).add(entry));
    }
  }
  const unseen = hidden.filter(({ type }) => !entriesOf.has(type));
  const twice = [...entriesOf].filter(([, entries]) => entries.size > 1);
  return [
    ...unseen.map(({ entry, type }) => `The public API of ${entry} uses the type ${type}, which no entry exports.`),
    ...twice.map(
      ([name, entries]) => `${name} is exported by ${[...entries].join(' and ')}. Export it from only one entry.`,
    ),
  ];
}

function textsOf(folder) {
  return new Map(readdirSync(folder).map((file) => [file, readFileSync(join(folder, file), 'utf8')]));
}
