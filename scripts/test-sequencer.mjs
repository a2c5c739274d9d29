import Sequencer from '@jest/test-sequencer';

/** Patterns of the slowest files. If a slow file starts last, the whole run waits for it. */
const LONGEST = [
  /\/chaos\/chaos\./,
  /\/contract\/(redis|redlock|sql|typeorm|memcached)/,
  /\/sample\//,
  /\/long\//,
  /\/contract\/(?!kit-|documented|every)/,
  /\/zookeeper\/ensemble/,
];

/** Slow files first, then like Jest: by last duration, or by size if that is unknown. */
export default class LongestFirst extends Sequencer {
  sort(tests) {
    const rank = ({ path }) => {
      const index = LONGEST.findIndex((pattern) => pattern.test(path));
      return index === -1 ? LONGEST.length : index;
    };
    return super.sort(tests).sort((a, b) => rank(a) - rank(b));
  }
}
