import Sequencer from '@jest/test-sequencer';

/** The files that take the longest, by what they do. A long file that starts last makes the whole run wait for it. */
const LONGEST = [
  /\/chaos\/chaos\./,
  /\/contract\/(redis|redlock|sql|typeorm|memcached)/,
  /\/sample\//,
  /\/long\//,
  /\/contract\/(?!kit-|documented|every)/,
  /\/zookeeper\/ensemble/,
];

/** Long files first, then as Jest does: by their last duration, or by their size where none is known. */
export default class LongestFirst extends Sequencer {
  sort(tests) {
    const rank = ({ path }) => {
      const index = LONGEST.findIndex((pattern) => pattern.test(path));
      return index === -1 ? LONGEST.length : index;
    };
    return super.sort(tests).sort((a, b) => rank(a) - rank(b));
  }
}
