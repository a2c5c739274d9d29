import { serversFrozenAtDeadline } from '../faults/servers.mjs';
import { claimOf, load } from './lock-manager.mjs';

/** How many ms longer a campaign may pause after its backend was unavailable. */
const LONGEST_PAUSE = 15_000;

/**
 * A subject whose clients campaign with `runAsLeader` instead of acquiring locks. Each section is the first term of a
 * campaign and ends with it. The judge detects two leaders like two holders.
 */
export function leadershipOf(subject) {
  return {
    ...subject,
    title: `leadership on ${subject.title}`,
    recovery: subject.recovery + LONGEST_PAUSE,
    // A campaign retries after a pause.
    fair: false,
    // A campaign has no deadline: the subject itself gives the section up here, without knowing whether the key is
    // busy.
    faults: subject.faults.filter((name) => name !== serversFrozenAtDeadline.name),
    connect: async (settings) => campaigning(settings.library, await subject.connect(settings)),
  };
}

async function campaigning(library, { manager, options, endOf, ...locks }) {
  const { Leadership, planCampaign } = await load(library, 'recipes/leadership.js');
  const leadership = new Leadership(manager);
  const plan = planCampaign(manager, options, 'The subject', ['lease']);
  const lost = new Set();
  manager.events.on('lost', ({ key }) => lost.add(key));
  const remaining = (key) => manager.admin.held().find((held) => held.key === key)?.remaining ?? 0;

  return {
    ...locks,
    shared: false,
    limited: undefined,
    acquire: (key, { wait, signal }) =>
      new Promise((resolve, reject) => {
        const section = new AbortController();
        let hasLed = false;
        // A campaign can't try without waiting.
        const over = AbortSignal.timeout(Math.max(wait, 20));
        AbortSignal.any(signal ? [over, signal] : [over]).addEventListener('abort', () => {
          if (!hasLed) section.abort();
        });
        const lead = (term) => {
          hasLed = true;
          const grantedAt = performance.now();
          let isSignaled = term.signal.aborted;
          term.signal.addEventListener('abort', () => {
            // The end of the section isn't a loss.
            isSignaled ||= !section.signal.aborted;
          });
          const led = { remaining: () => remaining(key), isHeld: () => !term.signal.aborted };
          return new Promise((end) => {
            resolve({
              tokenOf: () => term.fencingToken,
              isSignaled: () => isSignaled,
              claim: () => claimOf(led, endOf(key, grantedAt)),
              async release() {
                lost.delete(key);
                section.abort();
                end();
                await campaign;
                // A loss that the signal reported or the release detected.
                return isSignaled || lost.has(key) ? 'lost' : 'released';
              },
            });
          });
        };
        const campaign = leadership.run(key, lead, plan, { signal: section.signal });
        // After an election, both callbacks do nothing.
        campaign
          .then(() => {
            signal?.throwIfAborted();
            throw busy();
          })
          .catch(reject);
      }),
    pending: () => locks.pending() + leadership.campaigns.length,
  };
}

const busy = () => Object.assign(new Error('No leader resigned in time.'), { code: 'LOCK_BUSY' });
