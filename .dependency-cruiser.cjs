/*
 * Imports point down, type imports included: nest, integrations -> recipes -> core -> key, api; providers -> api, core/toolkit.
 * In nest: module -> decorators, transports -> methods, options -> service.
 * A path in parentheses is $1 in `to`.
 */
const only = (layer, below, comment) => ({
  name: layer.startsWith('providers/(') ? 'a-provider' : layer.replace('/', '-'),
  comment,
  severity: 'error',
  from: { path: `^lib/${layer}/` },
  to: { path: '^lib/', pathNot: `^lib/(${below})/` },
});

const BELOW_RECIPES = 'core|key|api';
const BELOW_NEST = `recipes|decoration|${BELOW_RECIPES}`;

module.exports = {
  forbidden: [
    // Two files of one idea may know each other's types. A cycle at run time is an error.
    {
      name: 'no-cycle',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    only('api', 'api'),
    only('key', 'key|api'),
    only('decoration', 'decoration|api'),
    only('core', 'core|key|api'),
    only('cli', 'cli|providers|core|key|api'),
    {
      name: 'core-knows-no-insight',
      comment: 'Code that explains or reports attaches through LockObserver: the path of a lock never mentions it.',
      severity: 'error',
      from: { path: '^lib/core/(acquire|hold|plan|member|events|toolkit)/' },
      to: { path: '^lib/core/insight/' },
    },
    {
      name: 'acquire-above-hold',
      comment: 'A grant and its holders know the waiters as types only. Plans and settings lie below both.',
      severity: 'error',
      from: { path: '^lib/core/hold/' },
      to: { path: '^lib/core/acquire/', dependencyTypesNot: ['type-only'] },
    },
    only('recipes', `recipes|${BELOW_RECIPES}`),
    only('nest/service', `nest/service|${BELOW_NEST}`),
    only('nest/options', `nest/(options|service)|${BELOW_NEST}`),
    only(
      'nest/methods',
      `nest/(methods|service)|${BELOW_NEST}`,
      'A decorated method knows neither its decorator nor a transport.',
    ),
    only('nest/decorators', `nest/(decorators|methods|service)|${BELOW_NEST}`),
    only('nest/transports', `nest/(transports|methods|options|service)|${BELOW_NEST}`),
    only('providers/(?!redlock|typeorm)([^/]+)', 'providers/($1|shared)|api|core/toolkit'),
    only(
      'providers/redlock',
      'providers/(redlock|shared)|providers/redis/client|api|core/toolkit',
      'Redlock connects to its nodes as the Redis provider connects to its server.',
    ),
    only(
      'providers/typeorm',
      'providers/(typeorm|sql|shared)|api|core/toolkit|decoration',
      'The locks of TypeORM are those of SQL, on the connections of a DataSource. @RetryOnConflict is a decorator.',
    ),
    {
      name: 'above-providers',
      comment: 'Only the embedded default, memory, is known above providers/.',
      severity: 'error',
      from: { path: '^lib/(nest|integrations)/' },
      to: { path: '^lib/providers/', pathNot: '^lib/providers/memory/' },
    },
    {
      name: 'no-nest',
      comment: 'Only nest/, integrations/ and testing/ may import Nest.',
      severity: 'error',
      from: { path: '^lib/(api|key|decoration|core|recipes|providers|provider-kit|cli)/' },
      to: { path: '@nestjs/' },
    },
    {
      name: 'no-typeorm',
      comment: 'Only providers/typeorm knows TypeORM.',
      severity: 'error',
      from: { path: '^lib/providers/sql/' },
      to: { path: '(^|/)typeorm(/|$)', pathNot: '^lib/' },
    },
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
  },
};
