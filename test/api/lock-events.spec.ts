import { LockEventPublisher } from '../../lib/core/events/publisher.js';

const EVENT = { key: 'a', provider: 'main', mode: 'exclusive', method: null, template: null } as const;

describe('the publisher of events', () => {
  it('builds no event that nobody listens to', () => {
    const publisher = new LockEventPublisher(() => undefined);
    let built = 0;
    const describe = () => {
      built += 1;
      return EVENT;
    };
    const publish = () => {
      if (publisher.has('waiting')) publisher.publish('waiting', describe());
    };
    publish();
    expect(built).toBe(0);
    const listener = () => undefined;
    publisher.on('waiting', listener);
    publish();
    publisher.off('waiting', listener);
    publish();
    expect(built).toBe(1);
  });

  it('calls each listener, once where once was asked for', () => {
    const publisher = new LockEventPublisher(() => undefined);
    const calls: string[] = [];
    publisher
      .on('waiting', ({ key }) => calls.push(`on ${key}`))
      .once('waiting', ({ key }) => calls.push(`once ${key}`));
    for (let twice = 0; twice < 2; twice += 1) publisher.publish('waiting', EVENT);
    expect(calls).toEqual(['on a', 'once a', 'on a']);
  });
});
