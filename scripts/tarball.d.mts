/** Packs the package as it would be published. Returns the path of the tarball in `folder`, and the paths of what is in it. */
export function packInto(folder: string): { readonly tarball: string; readonly files: readonly string[] };
