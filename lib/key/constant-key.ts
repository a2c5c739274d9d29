import type { ParameterNames } from './parameter-names.js';

const PATH = '[\\p{ID_Start}_][\\p{ID_Continue}$]*(?:\\??\\.[\\p{ID_Start}_][\\p{ID_Continue}$]*)*';

// `{id}`, `<id>`, `#id`, `$id` anywhere; `:id` and `id` as a whole segment; `%s`.
const PLACES = new RegExp(
  `\\{\\s*#?(${PATH})\\s*\\}|<(${PATH})>|[#$](${PATH})|(?<=^|[:/]):?(${PATH})(?=$|[:/])|%s`,
  'gu',
);

/**
 * The template that a constant key was probably meant to be, if it mentions a parameter in another template language's
 * syntax.
 */
export function templateMeantBy(key: string, parameters: ParameterNames): string | undefined {
  let position = 0;
  const meant = key.replace(PLACES, (written: string, ...paths: unknown[]) => {
    if (written === '%s') {
      const name = parameters[position] ?? '...';
      return position++ >= parameters.length ? written : `#{${name.startsWith('...') ? `p${position - 1}` : name}}`;
    }
    const path = paths.slice(0, 4).find((each): each is string => each !== undefined) ?? '';
    const [root = ''] = path.split(/\??\./);
    return parameters.includes(root) ? `#{${path}}` : written;
  });
  return meant === key ? undefined : meant;
}
