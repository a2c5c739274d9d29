// What an operator of a database does: KILL CONNECTION, pg_terminate_backend.

export const killConnection = {
  name: 'KILL CONNECTION',
  begin: ({ server, random }) => server.killConnections(random),
};
