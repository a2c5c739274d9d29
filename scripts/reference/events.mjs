import ts from 'typescript';
import { fieldLine } from './fields.mjs';
import { commentOf, exportedType, inOneLine, neededComment } from './types.mjs';

/** Each event: when it is emitted, and what it carries. */
export function eventSections() {
  return [...exportedType('LockEventMap').members.values()].map(section).join('\n\n');
}

function section(event) {
  const parts = partsOf(event.declarations[0].type);
  const fields = parts.flatMap((part) => (ts.isTypeLiteralNode(part) ? [...part.symbol.members.values()] : []));
  const explained = fields.filter((field) => commentOf(field) !== '');
  const names = [
    ...parts.filter(ts.isTypeReferenceNode).map((part) => part.getText()),
    ...fields.filter((field) => !explained.includes(field)).map(nameWithType),
  ];
  return [
    `### ${event.name}`,
    neededComment(event),
    ...(names.length > 0
      ? [`Carries ${names.map((name) => `\`${name}\``).join(', ')}${explained.length > 0 ? ', and:' : '.'}`]
      : []),
    ...(explained.length > 0 ? [explained.map(fieldLine).join('\n')] : []),
  ].join('\n\n');
}

function partsOf(type) {
  return ts.isIntersectionTypeNode(type) ? [...type.types] : [type];
}

function nameWithType({ name, declarations: [{ type }] }) {
  return `${name}: ${inOneLine(type.getText())}`;
}
