import { commentOf, exportedType, inOneLine } from './types.mjs';

/** The fields of these types, a line each. */
export function fieldList(names) {
  return names.flatMap((name) => [...exportedType(name).members.values()].map(fieldLine)).join('\n');
}

/** A field with its type, and its comment if it has one. */
export function fieldLine(member) {
  const [{ type }] = member.declarations;
  const comment = commentOf(member);
  return `- \`${member.name}: ${inOneLine(type.getText())}\`${comment && `: ${inOneLine(comment)}`}`;
}

/** What the comments of these types say, such as the meaning of each value. */
export function commentsOf(names) {
  return names.map((name) => commentOf(exportedType(name))).join('\n\n');
}
