import ts from 'typescript';
import { checker, exported, exportedType, inOneLine, neededComment } from './types.mjs';

// The types that users pass to the module, providers, decorators, and calls.
const IS_OPTIONS = /(Options|Config|Statuses|Defaults|Extras)$/;
// A comment names its default in a sentence that starts with "Default", or after the value in a list of values.
const NAMED_DEFAULT = /(?:^|(?<=\s))Default: ([^]+?)\.(?=\s|$)/;
const DEFAULT = /(?:^|(?<=\s))Default ((?:`[^`]*`|\([^)]*\)|\.\d|[^.,;:`])+)[.,;:]?(?=\s|$) ?/;
const LISTED_DEFAULT = /(`[^`]*`) \(default\)/;

/** The options of these types, in one table. */
export function optionsTable(names) {
  const rows = names.flatMap((name) => rowsOf(exportedType(name)));
  return ['|option|type|default|meaning|', '|---|---|---|---|', ...rows].join('\n');
}

/** The option types that have no table. */
export function optionsWithoutTable(shown) {
  const isType = ({ flags }) => flags & (ts.SymbolFlags.Interface | ts.SymbolFlags.TypeAlias);
  return [...exported.values()]
    .filter((symbol) => isType(symbol) && IS_OPTIONS.test(symbol.name) && rowsOf(symbol).length > 0)
    .map(({ name }) => name)
    .filter((name) => !shown.has(name));
}

function rowsOf(symbol) {
  const [declaration] = symbol.declarations;
  // The types that an alias combines have their own tables.
  const members = ts.isInterfaceDeclaration(declaration) ? [...symbol.members.values()] : [];
  return members.filter(isOption).map(rowOf);
}

function matchOfDefault(comment) {
  return NAMED_DEFAULT.exec(comment) ?? DEFAULT.exec(comment) ?? LISTED_DEFAULT.exec(comment);
}

/** The default that a comment names, or undefined if it names none. */
export function defaultIn(comment) {
  return matchOfDefault(comment)?.[1];
}

/** A property that can only be `undefined` belongs to another type, which this one excludes. */
function isOption({ flags, declarations }) {
  return flags & ts.SymbolFlags.Property && declarations[0].type.kind !== ts.SyntaxKind.UndefinedKeyword;
}

function rowOf(member) {
  const comment = neededComment(member);
  const [declaration] = member.declarations;
  const type = typeOf(declaration.type);
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

/** The values that a user may pass, in a few words. */
function typeOf(node) {
  const parts = ts.isUnionTypeNode(node) ? node.types : [node];
  return parts
    .filter(({ kind }) => kind !== ts.SyntaxKind.UndefinedKeyword)
    .map(wordOf)
    .join(', ');
}

function wordOf(node) {
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
  return inOneLine(text).replaceAll(/(?<=\. |^)[a-z]/g, (letter) => letter.toUpperCase());
}
