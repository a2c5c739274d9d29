import { commentOf, exportedType, inOneLine } from './types.mjs';

/** The fields of these types, one per line. */
export function fieldList(names) {
  return names.flatMap((name) => [...exportedType(name).members.values()].map(fieldLine)).join('\n');
}

/** A field or method as declared, and its comment if it has one. */
export function fieldLine(member) {
  const [declaration] = member.declarations;
  const text = inOneLine(declaration.getText())
    .replace(/^(declare )?(readonly )?/, '')
    .replace(/;$/, '');
  const comment = commentOf(member);
  return `- \`${text}\`${comment && `: ${inOneLine(comment)}`}`;
}

/** The comments of these types, such as the meaning of each value. */
export function commentsOf(names) {
  return names.map((name) => commentOf(exportedType(name))).join('\n\n');
}
