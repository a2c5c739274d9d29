// Handles that a lock provider may open. Listening servers (such as a proxy) belong to the harness, and immediates to
// the runner.
const KINDS = /socket|tls|pipe|timeout|dns|getaddrinfo|fsevent|worker|messageport/i;

const LOOKS = 500;

/** The handles that keep this process alive, by kind. */
export class OpenHandles {
  constructor(private readonly counts: ReadonlyMap<string, number>) {}

  /**
   * The kinds that have more handles than before. Waits for handles that are about to go away: sockets close a little
   * later, and runners have timers.
   */
  async outlivedBy(): Promise<string[]> {
    for (let look = 0; ; look += 1) {
      const more = [...openHandles().counts].filter(([kind, count]) => count > (this.counts.get(kind) ?? 0));
      if (more.length === 0 || look === LOOKS) return more.map(([kind]) => kind);
      // Always uses real time, as these handles do, no matter which clock the case uses.
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

/**
 * The handles that keep this process alive now. Examines the whole process, so only a case that runs alone can use it.
 */
export function openHandles(): OpenHandles {
  const counts = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) {
    if (KINDS.test(kind)) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return new OpenHandles(counts);
}
