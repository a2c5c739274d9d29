import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { root } from './ensure-installed.mjs';
import { packageEntries } from './package-entries.mjs';

/** The page of all options. `npm run api` writes its tables, and `npm run api:check` compares them. */
export const OPTIONS_PAGE = 'docs/reference/options.md';

const TABLE = /(?<begin><!-- options: (?<types>.+?) -->\n)[^]*?(?<end><!-- \/options -->)/g;
// What users pass to the module, to providers, to decorators and to calls. Authors of backends read api-report/provider-kit.api.md.
const IS_OPTIONS = /(Options|Config|Statuses|Defaults|Extras)$/;
// A comment names its default by a sentence that begins with "Default", or after the value in a list of values.
const NAMED_DEFAULT = /(?:^|(?<=\s))Default: ([^]+?)\.(?=\s|$)/;
const DEFAULT = /(?:^|(?<=\s))Default ((?:`[^`]*`|\([^)]*\)|\.\d|[^.,;:`])+)[.,;:]?(?=\s|$) ?/;
const LISTED_DEFAULT = /(`[^`]*`) \(default\)/;

/** The page, with its tables as the types have them now. @throws where an option has no comment, or a type has no table */
export function optionsPage() {
  const types = exportedTypes();
  const shown = new Set();
  const page = readFileSync(join(root, OPTIONS_PAGE), 'utf8').replace(TABLE, (...args) => {
    const { begin, end, types: names } = args.at(-1);
    const rows = names.split(', ').flatMap((name) => {
      if (!types.has(name)) throw new Error(`${OPTIONS_PAGE}: no entry of the package exports ${name}.`);
      shown.add(name);
      return types.get(name)();
    });
    return `${begin}${['|option|type|default|meaning|', '|---|---|---|---|', ...rows].join('\n')}\n${end}`;
  });
  const missing = [...types.keys()].filter((name) => !shown.has(name) && types.get(name)().length > 0);
  if (missing.length > 0) throw new Error(`${OPTIONS_PAGE} has no table of ${missing.join(', ')}.`);
  return page;
}

/** For each type of options that an entry exports, a function that makes the rows of its own members. */
function exportedTypes() {
  const entries = packageEntries().filter(({ name }) => name !== 'provider-kit');
  const { config } = ts.readConfigFile(join(root, 'tsconfig.build.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const program = ts.createProgram(
    entries.map(({ source }) => join(root, source)),
    options,
  );
  const checker = program.getTypeChecker();
  const types = new Map();
  for (const { source } of entries) {
    const module = checker.getSymbolAtLocation(program.getSourceFile(join(root, source)));
    for (const exported of checker.getExportsOfModule(module)) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      const isType = symbol.flags & (ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias);
      if (isType && IS_OPTIONS.test(symbol.name)) types.set(symbol.name, () => rowsOf(symbol, checker));
    }
  }
  return types;
}

function rowsOf(symbol, checker) {
  const [declaration] = symbol.declarations;
  // What an alias combines has tables of its own.
  const members = ts.isInterfaceDeclaration(declaration) ? [...symbol.members.values()] : [];
  return members.filter(isOption).map((member) => rowOf(member, symbol, checker));
}

function matchOfDefault(comment) {
  return NAMED_DEFAULT.exec(comment) ?? DEFAULT.exec(comment) ?? LISTED_DEFAULT.exec(comment);
}

/** The default that a comment names; undefined without. */
export function defaultIn(comment) {
  return matchOfDefault(comment)?.[1];
}

/** A property that can only be `undefined` belongs to another type, which this one excludes. */
function isOption({ flags, declarations }) {
  return flags & ts.SymbolFlags.Property && declarations[0].type.kind !== ts.SyntaxKind.UndefinedKeyword;
}

function rowOf(member, { name }, checker) {
  const comment = ts.displayPartsToString(member.getDocumentationComment(checker)).trim();
  if (comment === '') throw new Error(`${name}.${member.name} has no comment, so ${OPTIONS_PAGE} cannot explain it.`);
  const [declaration] = member.declarations;
  const type = typeOf(declaration.type, checker);
  const isOptional = member.declarations.some(({ questionToken }) => questionToken);
  const found = matchOfDefault(comment);
  const isSentence = found !== null && !LISTED_DEFAULT.test(found[0]);
  const meaning = isSentence ? comment.replace(found[0], '') : comment;
  const cells = [
    `\`${member.name}\``,
    type,
    isOptional ? inOneLine(found?.[1] ?? '') : 'required',
    meaningText(meaning, type),
  ];
  return `|${cells.map((cell) => cell.replaceAll('|', '\\|')).join('|')}|`;
}

/** What a user may give, in a few words. */
function typeOf(node, checker) {
  const parts = ts.isUnionTypeNode(node) ? node.types : [node];
  return parts
    .filter(({ kind }) => kind !== ts.SyntaxKind.UndefinedKeyword)
    .map((part) => wordOf(part, checker))
    .join(', ');
}

function wordOf(node, checker) {
  const type = checker.getTypeFromTypeNode(node);
  if (type.isUnion() && type.types.every((each) => each.isStringLiteral()))
    return type.types.map(({ value }) => `\`'${value}'\``).join(', ');
  const text = node.getText().replaceAll(/\breadonly /g, '');
  if (text.endsWith('Duration')) return 'duration';
  if (text.includes('=>') || text.endsWith('Handler')) return 'function';
  if (text.endsWith('[]')) return 'list';
  if (text.startsWith('{') || text.length > 50) return 'object';
  return /^[a-z]+$/.test(text) ? text : `\`${text}\``;
}

function meaningText(comment, type) {
  const text = type.includes('duration') ? comment.replace(/, in ms\b/, '') : comment;
  return inOneLine(text.replaceAll(/\{@link ([\w.]+) ?\}/g, '`$1`')).replaceAll(/(?<=\. |^)[a-z]/g, (letter) =>
    letter.toUpperCase(),
  );
}

function inOneLine(text) {
  return text.replaceAll(/\s*\n\s*(- )?| {2,}/g, ' ').trim();
}
