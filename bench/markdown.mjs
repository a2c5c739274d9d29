// Markdown tables, and the generated parts of pages.
import { readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';

/** A table whose first column is text. The other columns are numbers unless `columns` is `text`. */
export function markdownTable(head, rows, columns = 'numbers') {
  const cells = (values) => `| ${values.join(' | ')} |`;
  const rule = head.map((_, index) => (index === 0 || columns === 'text' ? '---' : '---:'));
  return [cells(head), `|${rule.join('|')}|`, ...rows.map(cells)].join('\n');
}

/** Removes the spaces next to the bars of a table, which count as words of a page. */
export function compact(table) {
  return table.replaceAll(/ *\| */g, '|');
}

/** The text of a page with `content` between the markers `<!-- part -->` and `<!-- /part -->`. */
export function withPart(text, part, content) {
  const [begin, end] = [`<!-- ${part} -->`, `<!-- /${part} -->`];
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from < 0 || to < from) throw new Error(`The markers ${begin} and ${end} are missing.`);
  return `${text.slice(0, from + begin.length)}\n${content}\n${text.slice(to)}`;
}

/** Writes the generated parts of a page, by the names of their markers. */
export function drawPage(file, parts) {
  try {
    const drawn = Object.entries(parts).reduce(
      (text, [part, content]) => withPart(text, part, content),
      readFileSync(file, 'utf8'),
    );
    writeFileSync(file, drawn);
  } catch (error) {
    throw new Error(`${basename(file)} was not updated. ${error.message}`, { cause: error });
  }
}
