import { readFileSync, writeFileSync } from 'node:fs';
import { commandLine } from './command-line.mjs';

const USAGE = `node scripts/check-release.mjs [--repository <address>]

Fails if anything that a release needs is missing. The release workflow runs it before publishing.
  --repository https://github.com/acme/locks   first writes this address into package.json and the alert rules`;
const RULES = 'docs/monitoring/alert-rules.yml';

const { values } = commandLine(USAGE, { options: { repository: { type: 'string' } } });
if (values.repository !== undefined) fillIn(values.repository.replace(/\/$/, ''));

const { version, ...manifest } = JSON.parse(readFileSync('package.json', 'utf8'));
const { GITHUB_REF_TYPE, GITHUB_REF_NAME } = process.env;
const problems = [];

const missing = ['homepage', 'repository', 'bugs'].filter((name) => manifest[name] === undefined);
for (const name of missing) problems.push(`package.json has no "${name}".`);
if (/^ *runbook:/m.test(readFileSync(RULES, 'utf8'))) problems.push(`${RULES} has no address of the runbook.`);
if (problems.length > 0)
  problems.push('Run "node scripts/check-release.mjs --repository <address>" and commit the result.');

const heading = readFileSync('CHANGELOG.md', 'utf8')
  .split('\n')
  .find((line) => line.startsWith(`## ${version}`));
if (!heading) problems.push(`CHANGELOG.md has no heading "## ${version}".`);
else if (heading.includes('unreleased'))
  problems.push(`CHANGELOG.md says that ${version} is unreleased. Replace this with its date.`);

if (GITHUB_REF_TYPE === 'tag' && GITHUB_REF_NAME !== `v${version}`) {
  problems.push(
    `The tag is ${GITHUB_REF_NAME}, but the version in package.json is ${version}: the tag must be v${version}.`,
  );
}

for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);

/**
 * What only the repository's owner knows. Until it is filled in, the package has no address rather than a wrong one.
 */
function fillIn(address) {
  const filled = {
    ...JSON.parse(readFileSync('package.json', 'utf8')),
    homepage: `${address}#readme`,
    repository: { type: 'git', url: `git+${address}.git` },
    bugs: { url: `${address}/issues` },
  };
  writeFileSync('package.json', `${JSON.stringify(filled, null, 2)}\n`);
  const rules = readFileSync(RULES, 'utf8').replaceAll(/\brunbook: (?=docs)/g, `runbook_url: ${address}/blob/main/`);
  writeFileSync(RULES, rules);
}
