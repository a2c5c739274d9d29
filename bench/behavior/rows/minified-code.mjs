// A minifier has renamed the parameters of a method whose lock key uses one of them.
import { minify } from '@swc/core';
import { compare, nameOf, NONE, outcome } from '../compare.mjs';
import { payController } from '../nest.mjs';

const SOURCE = 'export default class Orders { async pay(id) { return id; } }';
const { code } = await minify(SOURCE, { module: true, mangle: true, compress: true });
if (code.includes('(id)')) throw new Error(`The minifier renamed nothing: ${code}`);

await compare('Key by a parameter, minified code', async ({ nest, lock, open, name, keysBy }) => {
  if (!nest) return NONE;
  if (keysBy === 'nothing') return 'keys are constants';
  const endWith = async (by) => {
    const { default: Orders } = await import(`data:text/javascript,${encodeURIComponent(code)}#${name}-${by}`);
    const type = payController(nest, Orders.prototype.pay, [lock(10_000, { by })], Orders);
    const booted = await outcome(open({ controllers: [type] }));
    if (booted.error) return `the boot fails, \`${nameOf(booted.error)}\``;
    const called = await outcome(booted.value.app.get(type).pay('1'));
    return called.error ? `each call fails, \`${nameOf(called.error)}\`` : 'works';
  };
  if (keysBy === 'function') return `function of the arguments: ${await endWith('function')}`;
  return `by name: ${await endWith('name')}; by position: ${await endWith('position')}`;
});
