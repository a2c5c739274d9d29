import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Replaces a process's wall clock. The monotonic clock, and therefore timers, are unaffected. (libfaketime breaks
// redis-server: its allocator recurses.)
const SOURCE = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *page;                 /* [0] 1 = stands still, [1] microseconds: the time, or what to add to it */
__attribute__((constructor)) static void start(void) {
  int file = open(getenv("SERVER_CLOCK"), O_RDONLY);
  if (file >= 0) page = mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
}
static int64_t micros(void) {
  struct timespec t;
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
  int64_t real = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
  return !page ? real : page[0] ? page[1] : real + page[1];
}
int gettimeofday(struct timeval *restrict v, void *restrict z) {
  int64_t u = micros();
  v->tv_sec = u / 1000000; v->tv_usec = u % 1000000;
  return 0;
}
time_t time(time_t *v) { time_t s = micros() / 1000000; if (v) *v = s; return s; }
int clock_gettime(clockid_t id, struct timespec *v) {
  if (id != CLOCK_REALTIME) return syscall(SYS_clock_gettime, id, v);
  int64_t u = micros();
  v->tv_sec = u / 1000000; v->tv_nsec = u % 1000000 * 1000;
  return 0;
}
`;

/** A server's wall clock, which tests can step or freeze. */
export interface ServerClock {
  /** The environment to start the server with. */
  readonly env: Readonly<Record<string, string>>;
  /** Runs the clock `milliseconds` ahead of the real one. */
  step(milliseconds: number): void;
  /** Freezes the clock at `milliseconds` since the epoch until it's set again. */
  freeze(milliseconds: number): void;
  remove(): void;
}

export const NO_COMPILER = 'a server clock needs a C compiler';

/** Creates a clock, or returns undefined without a C compiler. */
export function makeServerClock(): ServerClock | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'lock-clock-'));
  const [source, library, page] = ['clock.c', 'clock.so', 'page'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(source, SOURCE);
  const compiled = spawnSync('cc', ['-shared', '-fPIC', '-O1', '-o', library, source]);
  if (compiled.status !== 0) {
    rmSync(folder, { recursive: true });
    return undefined;
  }
  const write = (frozen: bigint, milliseconds: number) => {
    writeSync(file, new BigInt64Array([frozen, BigInt(milliseconds) * 1_000n]), 0, 16, 0);
  };
  writeFileSync(page, new BigInt64Array(2));
  const file = openSync(page, 'r+');
  return {
    env: { LD_PRELOAD: library, SERVER_CLOCK: page },
    step(milliseconds) {
      write(0n, milliseconds);
    },
    freeze(milliseconds) {
      write(1n, milliseconds);
    },
    remove() {
      closeSync(file);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
