/** See installed-node.mjs. */
export function installedNode(version: string): { readonly file: string; readonly version: string };
