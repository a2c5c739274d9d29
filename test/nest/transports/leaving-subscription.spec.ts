import {
  AbstractGraphQLDriver,
  Args,
  GraphQLModule,
  GraphQLSchemaHost,
  Query,
  Resolver,
  Subscription,
} from '@nestjs/graphql';
import { parse, subscribe } from 'graphql';
import { currentLock, DistributedLock, LockAdmin } from '../../../lib/index.js';
import { serve, until } from '../apps.js';

/** Makes the schema alone; the test executes it. */
class SchemaDriver extends AbstractGraphQLDriver {
  override async start() {}
  override async stop() {}
}

@Resolver()
class Feed {
  @Query(() => String)
  name() {
    return 'feed';
  }
  @Subscription(() => String)
  @DistributedLock('device:#{id}')
  async *generated(@Args('id') id: string): AsyncGenerator<object> {
    yield { generated: `${currentLock().key} ${id}` };
    await aborted();
  }
  // As an async generator that is compiled for ES2017.
  @Subscription(() => String)
  @DistributedLock('device:#{id}')
  returned(@Args('id') id: string): AsyncGenerator<object> {
    return (async function* () {
      yield { returned: `${currentLock().key} ${id}` };
      await aborted();
    })();
  }
}

function aborted(): Promise<never> {
  const { signal } = currentLock();
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => {
      reject(signal.reason as Error);
    });
  });
}

it.each(['generated', 'returned'])(
  'a GraphQL subscription that ends frees the lock of its generator (%s)',
  async (name) => {
    const graphql = GraphQLModule.forRoot({ driver: SchemaDriver, autoSchemaFile: true });
    const { app } = await serve({ imports: [graphql], providers: [Feed] });
    const held = () =>
      app
        .get(LockAdmin)
        .held()
        .map(({ key }) => key);
    const results = (await subscribe({
      schema: app.get(GraphQLSchemaHost).schema,
      document: parse(`subscription { ${name}(id: "7") }`),
      contextValue: {},
    })) as AsyncGenerator<object>;
    expect(await results.next()).toMatchObject({ value: { data: { [name]: 'device:7 7' } } });
    const next = results.next();
    expect(held()).toEqual(['device:7']);
    await results.return(undefined);
    expect(await next).toMatchObject({ done: true });
    await until(() => held().length === 0);
  },
);
