import { SuspensionDetector } from '../../lib/core/toolkit/suspension.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const MONTH = 30 * 24 * HOUR;

/** A clock whose time since boot runs faster than its monotonic time by `drift`, and is counted in steps of `step` ms. */
class DriftingClock extends FakeClock {
  constructor(
    private readonly drift: number,
    private readonly step = 1,
  ) {
    super();
  }

  override uptime(): number {
    return Math.floor((super.uptime() + this.now() * this.drift) / this.step) * this.step;
  }
}

describe('two clocks that drift apart by 25 ppm', () => {
  it.each([
    ['every ten seconds', 25e-6, 10 * SECOND],
    ['every ten seconds, backwards', -25e-6, 10 * SECOND],
    ['every hour', 25e-6, HOUR],
    ['once', 25e-6, MONTH],
  ])('are no suspension in a month, looked at %s', (_, drift, every) => {
    const clock = new DriftingClock(drift, 10);
    const detector = new SuspensionDetector(clock);
    for (let time = 0; time < MONTH; time += every) {
      clock.block(every);
      detector.observe();
    }
    expect(detector.observe()).toBe(0);
    clock.suspend(10_000 + every * 0.001);
    expect(detector.observe()).toBe(1);
    expect(detector.observe()).toBe(1);
  });

  it('are none either where the time since boot is counted in whole seconds', () => {
    const clock = new DriftingClock(25e-6, SECOND);
    const detector = new SuspensionDetector(clock);
    for (let time = 0; time < MONTH / 10; time += 700) {
      clock.block(700);
      detector.observe();
    }
    expect(detector.observe()).toBe(0);
  });

  it('do not hide short suspensions that follow each other', () => {
    const clock = new DriftingClock(25e-6);
    const detector = new SuspensionDetector(clock);
    for (let each = 0; each < 5; each += 1) {
      clock.block(SECOND);
      clock.suspend(500);
      detector.observe();
    }
    expect(detector.observe()).toBe(1);
  });
});

describe('a grant', () => {
  function watched() {
    const clock = new FakeClock();
    const detector = new SuspensionDetector(clock);
    let looks = 0;
    const { uptime } = clock;
    clock.uptime = () => {
      looks += 1;
      return uptime.call(clock);
    };
    return { clock, detector, looks: () => looks };
  }

  it('costs no look at the time since boot as long as the wall clock keeps step', () => {
    const { clock, detector, looks } = watched();
    clock.block(60_000);
    expect(detector.observeGrant(clock.now())).toBe(0);
    expect(looks()).toBe(0);
  });

  it('finds a suspension, and those that are short but add up', () => {
    const { clock, detector } = watched();
    clock.suspend(2_100);
    expect(detector.observeGrant(clock.now())).toBe(1);
    for (let each = 0; each < 6; each += 1) {
      clock.suspend(500);
      detector.observeGrant(clock.now());
    }
    expect(detector.observeGrant(clock.now())).toBe(2);
  });

  it('takes no step of the wall clock for a suspension', () => {
    const { clock, detector, looks } = watched();
    clock.stepWallTime(3_600_000);
    expect(detector.observeGrant(clock.now())).toBe(0);
    expect(looks()).toBe(1);
    clock.stepWallTime(-3_600_000);
    expect(detector.observeGrant(clock.now())).toBe(0);
  });
});
