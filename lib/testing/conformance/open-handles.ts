// What a lock provider may open. Listening servers are the harness's own (a proxy, say), immediates the runner's.
const KINDS = /socket|tls|pipe|timeout|dns|getaddrinfo|fsevent|worker|messageport/i;

/** What keeps this process alive, by kind. */
export class OpenHandles {
  constructor(private readonly counts: ReadonlyMap<string, number>) {}

  /** The kinds of which there are more than `before`. */
  since(before: OpenHandles): string[] {
    return [...this.counts].filter(([kind, count]) => count > (before.counts.get(kind) ?? 0)).map(([kind]) => kind);
  }
}

/** What keeps this process alive now. Looks at the whole process, so that only a case that runs alone can use it. */
export function openHandles(): OpenHandles {
  const counts = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) {
    if (KINDS.test(kind)) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return new OpenHandles(counts);
}
