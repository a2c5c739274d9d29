/**
 * The text of `mutant.file` with its fault.
 *
 * @throws if `from` does not occur exactly one time. Then the code has changed: write the fault anew for what does its
 * job now.
 */
export function planted(mutant, text) {
  const places = text.split(mutant.from).length - 1;
  if (places !== 1) {
    throw new Error(`${mutant.id}: ${mutant.file} has ${places} places with this text, and not one:\n${mutant.from}`);
  }
  return text.replace(mutant.from, () => mutant.to);
}
