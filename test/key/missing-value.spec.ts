import { missingValueIn } from '../../lib/key/missing-value.js';

const text = (value: unknown) => String(value);

it.each([
  [`order:${text(undefined)}`, 'undefined'],
  [`${text(null)}:line:1`, 'null'],
  [`tenant:a/order/${text(NaN)}/lines`, 'NaN'],
  [`order:${text({ id: 1 })}`, '[object Object]'],
  [`order:${text([{ id: 1 }, { id: 2 }])}:pay`, '[object Object],[object Object]'],
  [`order:${text(Promise.resolve(1))}`, '[object Promise]'],
  [`report:${text(new Date(NaN))}`, 'Invalid Date'],
  ['undefined', 'undefined'],
  [`a:${text(undefined)}:${text(null)}`, 'undefined'],
])('%s has the text of a missing value', (key, segment) => {
  expect(missingValueIn(key)).toEqual({ key, segment });
  expect(missingValueIn(['order:1', key])).toEqual({ key, segment });
});

it.each(['order:42', 'undefined-behavior', 'slug:null-object', 'user:Null', 'user:nan', 'a:nullable', 'x[object]', ''])(
  '"%s" has none',
  (key) => {
    expect(missingValueIn(key)).toBeUndefined();
    expect(missingValueIn([key])).toBeUndefined();
  },
);

it('what is no key has none', () => {
  for (const key of [undefined, null, 7, {}, [undefined, 7]]) expect(missingValueIn(key as never)).toBeUndefined();
});
