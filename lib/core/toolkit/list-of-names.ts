/** Whether an option is a list of names. A text has a length and can be iterated too: 'ab' would be taken for a and b. */
export function isListOfNames(names: unknown): boolean {
  return Array.isArray(names) && names.every((name) => typeof name === 'string');
}
