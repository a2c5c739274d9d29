// Fails while something is missing that a release needs. The release workflow runs it before it publishes.
import { readFileSync } from 'node:fs';

// Where the repository will be, once that is known.
const PLACEHOLDER = '/OWNER/';

const { version, homepage, repository, bugs } = JSON.parse(readFileSync('package.json', 'utf8'));
const changelog = readFileSync('CHANGELOG.md', 'utf8');
const { GITHUB_REF_TYPE, GITHUB_REF_NAME } = process.env;
const problems = [];

for (const [key, address] of Object.entries({ homepage, repository: repository?.url, bugs: bugs?.url })) {
  if (!address) problems.push(`package.json has no "${key}".`);
  else if (address.includes(PLACEHOLDER)) {
    problems.push(`"${key}" in package.json is a placeholder: replace OWNER in ${address}.`);
  }
}

for (const file of ['SECURITY.md', 'docs/monitoring/alert-rules.yml']) {
  if (readFileSync(file, 'utf8').includes(PLACEHOLDER)) problems.push(`${file} has a placeholder: replace OWNER.`);
}

const heading = changelog.split('\n').find((line) => line.startsWith(`## ${version}`));
if (!heading) problems.push(`CHANGELOG.md has no heading "## ${version}".`);
else if (heading.includes('unreleased')) problems.push(`CHANGELOG.md calls ${version} unreleased: write its date.`);

if (GITHUB_REF_TYPE === 'tag' && GITHUB_REF_NAME !== `v${version}`) {
  problems.push(
    `The tag is ${GITHUB_REF_NAME}, and the version in package.json is ${version}: the tag must be v${version}.`,
  );
}

for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);
