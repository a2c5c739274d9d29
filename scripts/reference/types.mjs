import { join } from 'node:path';
import ts from 'typescript';
import { root } from '../ensure-installed.mjs';
import { packageEntries } from '../package-entries.mjs';

const { config } = ts.readConfigFile(join(root, 'tsconfig.build.json'), ts.sys.readFile);
const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
const entries = packageEntries();

/** The sources of the package, starting from its entries. */
export const program = ts.createProgram(
  entries.map(({ source }) => join(root, source)),
  options,
);
export const checker = program.getTypeChecker();

const ofAuthors = typesOf(entries.filter(({ name }) => name === 'provider-kit'));

/** The types and classes that users import, by their names in the sources. */
export const exported = typesOf(entries.filter(({ name }) => name !== 'provider-kit'));

function typesOf(some) {
  const types = some
    .flatMap(({ source }) =>
      checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(join(root, source)))),
    )
    .map((symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol))
    .filter(({ flags }) => !(flags & ts.SymbolFlags.Function));
  return new Map(types.map((symbol) => [symbol.name, symbol]));
}

/** A type or class that users or provider authors import. */
export function exportedType(name) {
  const symbol = exported.get(name) ?? ofAuthors.get(name);
  if (!symbol) throw new Error(`No entry of the package exports ${name}.`);
  return symbol;
}

/** The doc comment of a symbol or of one of its members. Empty if there is none. */
export function commentOf(symbol) {
  const comment = ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
  return comment.replaceAll(/\{@link ([\w.]+) ?\}/g, '`$1`');
}

/** The doc comment of something that the documentation must explain. */
export function neededComment(symbol) {
  const comment = commentOf(symbol);
  if (comment === '') throw new Error(`${symbol.parent.name}.${symbol.name} has no comment for the documentation.`);
  return comment;
}

export function inOneLine(text) {
  return text.replaceAll(/\s*\n\s*(- )?| {2,}/g, ' ').trim();
}
