import { join, relative } from 'node:path';
import ts from 'typescript';
import { root } from '../ensure-installed.mjs';
import { defaultIn } from './options.mjs';
import { checker, program } from './types.mjs';

const UNITS = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  days: 86_400_000,
};
const AMOUNT = /^(\d[\d ]*(?:\.\d+)?) ?(ms|s|min|m|h|days?|d)?(?![a-z])/;

/**
 * Compares the default in an option's comment with the default in the table that defines the option: `window:
 * duration().or('6s')` and "Default 6 s". A table names its options with `satisfies OptionTable<…>`.
 *
 * @returns {string[]} one sentence for each difference
 */
export function wrongDefaults() {
  /**
   * For each declaration of an option: its initializer in a table. If there are several, the one in the table with the
   * fewest options.
   */
  const found = new Map();
  for (const file of program.getSourceFiles()) {
    if (!file.isDeclarationFile && file.fileName.startsWith(join(root, 'lib'))) visit(file);
  }
  return [...found].flatMap(([declaration, { initializer }]) => problemOf(declaration, initializer));

  function visit(node) {
    if (ts.isSatisfiesExpression(node) && node.type.getText().startsWith('OptionTable<')) addTable(node);
    ts.forEachChild(node, visit);
  }

  function addTable({ expression, type }) {
    const [owner] = type.typeArguments;
    const ofOwner = checker.getTypeFromTypeNode(owner);
    for (const property of checker.getPropertiesOfType(checker.getTypeAtLocation(expression))) {
      const initializer = property.valueDeclaration?.initializer;
      const declarations = checker.getPropertyOfType(ofOwner, property.name)?.declarations ?? [];
      for (const declaration of initializer ? declarations : []) {
        if ((found.get(declaration)?.among ?? Infinity) < declarations.length) continue;
        found.set(declaration, { initializer, among: declarations.length });
      }
    }
  }

  function problemOf(declaration, initializer) {
    const symbol = checker.getSymbolAtLocation(declaration.name);
    const comment = ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
    const said = valueOf(defaultIn(comment));
    const read =
      tableDefault(initializer) ?? (initializer.getText().startsWith('anything(') ? ofManager(symbol.name) : undefined);
    if (read === undefined || said === read) return [];
    const { line } = declaration.getSourceFile().getLineAndCharacterOfPosition(declaration.getStart());
    const place = `${relative(root, declaration.getSourceFile().fileName)}:${line + 1}`;
    return [`${place}: the comment of "${symbol.name}" says the default is ${said}, but the table says ${read}.`];
  }

  /** The module passes some options on to the manager, which reads them. */
  function ofManager(option) {
    const isOfManager = ([{ name, parent }]) => parent.name?.text === 'LockManagerOptions' && name.text === option;
    const [, { initializer } = {}] = [...found].find(isOfManager) ?? [];
    return initializer && tableDefault(initializer);
  }

  /** The argument of `.or()`, or undefined if there is none. */
  function tableDefault(node) {
    if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression)) {
      const { name, expression } = node.expression;
      return name.text === 'or' ? valueOf(textOf(node.arguments[0])) : tableDefault(expression);
    }
    if (!ts.isCallExpression(node) || !ts.isIdentifier(node.expression)) return undefined;
    // A function that creates the option, such as the name of a table.
    const called = checker.getSymbolAtLocation(node.expression);
    const [target] = (called.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(called) : called).declarations;
    const last = target.body?.statements.at(-1);
    return last && ts.isReturnStatement(last) && last.expression.getText().includes('.or(')
      ? tableDefault(last.expression)
      : undefined;
  }

  function textOf(node) {
    if (ts.isStringLiteral(node)) return node.text;
    if (ts.isArrayLiteralExpression(node) && node.elements.length === 0) return 'none';
    if (!ts.isIdentifier(node)) return node.getText();
    return textOf(checker.getSymbolAtLocation(node).valueDeclaration?.initializer ?? aliased(node));
  }

  function aliased(node) {
    return checker.getAliasedSymbol(checker.getSymbolAtLocation(node)).valueDeclaration.initializer;
  }
}

/** A time in ms, a number, or the first word. */
function valueOf(text) {
  if (text === undefined) return undefined;
  const plain = text.replaceAll(/[`']/g, '').trim();
  const [, number, unit] = AMOUNT.exec(plain) ?? [];
  if (number === undefined) return plain.split(/[ ;,]/)[0];
  return String(Number(number.replaceAll(' ', '')) * (unit ? UNITS[unit] : 1));
}
