import ts from 'typescript';
import { fieldLine } from './fields.mjs';
import { checker, commentOf, exported, exportedType, neededComment } from './types.mjs';

/** Each class of lock errors: its code, its comment, and the fields it adds. */
export function errorSections() {
  const base = exportedType('LockError').valueDeclaration;
  return [...exported.values()]
    .filter(({ valueDeclaration }) => valueDeclaration && ts.isClassDeclaration(valueDeclaration))
    .filter(({ valueDeclaration }) => extendedBy(valueDeclaration) === base)
    .toSorted((one, other) => one.valueDeclaration.pos - other.valueDeclaration.pos)
    .map(section)
    .join('\n\n');
}

function extendedBy({ heritageClauses = [] }) {
  const [type] = heritageClauses.flatMap(({ token, types }) => (token === ts.SyntaxKind.ExtendsKeyword ? types : []));
  return type && checker.getTypeAtLocation(type.expression).symbol?.valueDeclaration;
}

function section(symbol) {
  const { code, ...members } = Object.fromEntries(symbol.members);
  const fields = Object.values(members)
    .filter(({ flags }) => flags & ts.SymbolFlags.Property)
    .filter((member) => commentOf(member) !== '')
    .map(fieldLine);
  return [
    `### ${symbol.name}`,
    `Code: \`${code.valueDeclaration.initializer.text}\``,
    neededComment(symbol),
    ...(fields.length > 0 ? ['Fields:', fields.join('\n')] : []),
  ].join('\n\n');
}
