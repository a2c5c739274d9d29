/**
 * The text of `mutant.file` with its fault.
 *
 * @throws if the patch does not apply exactly once: then the code has changed, and the fault must be written anew for what does its job now
 */
export function planted(mutant, text) {
  const places = text.split(mutant.from).length - 1;
  if (places !== 1) {
    throw new Error(`${mutant.id}: ${mutant.file} has ${places} places with this text, and not one:\n${mutant.from}`);
  }
  return text.replace(mutant.from, () => mutant.to);
}
