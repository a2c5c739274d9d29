// One instance of an application with a job that is due every second. Reports when the job starts and ends, according
// to the real clock.
const [, , name, url, late, takes] = process.argv;

const now = () => performance.timeOrigin + performance.now();
if (Number(late) > 0) makeLate(Number(late));

const { startOf } = await import('./schedulers.mjs');
await startOf(name)({ url, job });
process.send({ ready: true });

async function job() {
  process.send({ begin: now() });
  await new Promise((resolve) => setTimeout(resolve, Number(takes)));
  process.send({ end: now() });
}

/** Sets this process's wall clock back. */
function makeLate(milliseconds) {
  const RealDate = Date;
  globalThis.Date = class extends RealDate {
    constructor(...args) {
      if (args.length === 0) super(RealDate.now() - milliseconds);
      else super(...args);
    }
    static now() {
      return RealDate.now() - milliseconds;
    }
  };
}
