// Faults between one worker and its servers.

const onAllWires = (act) => (context) => context.victim.wires.forEach((wire) => act(wire, context));
const heal = onAllWires((wire) => wire.heal());

export const wireDelayed = {
  name: 'wire delayed',
  begin: onAllWires((wire, { random }) => wire.delay(random.between(20, 200))),
  end: heal,
};
export const requestsLost = { name: 'requests lost', begin: onAllWires((wire) => wire.lose('up')), end: heal };
export const repliesLost = { name: 'replies lost', begin: onAllWires((wire) => wire.lose('down')), end: heal };
export const wireHalfOpen = { name: 'wire half-open', begin: onAllWires((wire) => wire.freeze()), end: heal };
export const wireReset = { name: 'wire reset', begin: onAllWires((wire) => wire.reset()) };
export const connectionsRefused = {
  name: 'connections refused',
  begin: onAllWires((wire) => wire.refuse()),
  end: heal,
};

/** Cut off from one of its servers, which everybody else reaches. */
const onOneWire = (act) => ({
  begin(context) {
    context.wire = context.random.pick(context.victim.wires);
    act(context.wire);
  },
  end: ({ wire }) => wire.heal(),
});
export const oneWireHalfOpen = { name: 'one wire half-open', ...onOneWire((wire) => wire.freeze()) };
export const oneWireRefused = { name: 'one wire refused', ...onOneWire((wire) => wire.refuse()) };
