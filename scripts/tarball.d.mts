/**
 * Packs the package as it would be published. Returns the path of the tarball in `folder`, the paths of its files, and
 * its size.
 */
export function packInto(folder: string): {
  readonly tarball: string;
  readonly files: readonly string[];
  readonly size: number;
  readonly unpackedSize: number;
};
