const PROCESS_NOTE =
  'The button stops the process that holds the lock (SIGSTOP). A stopped process renews nothing, so its lease ends. It runs again when the next holder has written.';
const TASK_NOTE =
  'This shop is one process, so the button stops the order that holds the lock, not the process. The option maxHold ends its lock. The order goes on when the next holder has written.';
const SVG = 'http://www.w3.org/2000/svg';

const find = (id) => document.getElementById(id);
const openButton = find('open');
const freezeButton = find('freeze');
let leaseLength = 0;
let announced = '';
let shown;

const events = new EventSource('/events');
events.onmessage = ({ data }) => show((shown = JSON.parse(data)));
events.onerror = () => {
  setText(find('shop'), 'The shop does not answer. Start it again with npm start.');
};
new ResizeObserver(() => shown && showWaits(shown)).observe(find('waits'));
openButton.addEventListener('click', () => press(openButton, '/sale'));
freezeButton.addEventListener('click', () => press(freezeButton, '/freeze'));

/** Uses `aria-disabled`, because a button with `disabled` would lose the focus. Clicks are ignored here. */
function press(button, path) {
  if (button.getAttribute('aria-disabled') !== 'true') void fetch(path, { method: 'POST' });
}

function show(state) {
  const { provider, processes, items, orders, ordersOver, atOnce, paymentTakes, phase, guarded, freeze } = state;
  setText(find('shop'), `${processes === 1 ? '1 process' : `${processes} processes`}, locks in ${provider}`);
  setText(
    find('terms'),
    `${orders} customers order in ${ordersOver / 1_000} seconds, ${atOnce} at a time, and there are ${items} items. Each order reads the stock, waits ${paymentTakes} ms for the bank, and writes the stock.`,
  );
  setText(find('freeze-how'), processes === 1 ? TASK_NOTE : PROCESS_NOTE);
  disable(openButton, phase === 'open');
  disable(freezeButton, phase !== 'open' || guarded.left === 0 || (freeze && freeze.step !== 'over'));
  for (const name of ['unguarded', 'guarded'])
    showSale(document.querySelector(`[data-sale=${name}]`), state[name], state);
  showLock(state);
  showSteps(state);
  showWaits(state);
  showWrites(state);
  announce(state);
}

function showSale(panel, { answers, left }, { items, orders, phase }) {
  const count = (outcome) => answers.filter((answer) => answer === outcome).length;
  const sold = count('sold');
  const isOversold = sold > items;
  const isDone = answers.length === orders;
  const fields = {
    sold,
    of: `sold of ${items}`,
    left,
    soldOut: count('soldOut'),
    failed: count('failed'),
    verdict: isOversold
      ? `Oversold by ${sold - items}`
      : isDone
        ? sold === items
          ? 'Exact'
          : `${items - sold} not sold`
        : phase === 'open'
          ? 'On sale'
          : 'Closed',
  };
  for (const [name, value] of Object.entries(fields)) setText(panel.querySelector(`[data-field=${name}]`), value);
  panel.classList.toggle('is-bad', isOversold);
  const grid = panel.querySelector('.orders');
  while (grid.children.length < orders) grid.append(document.createElement('i'));
  let number = 0;
  for (const [index, square] of [...grid.children].entries()) {
    const answer = answers[index];
    if (answer === 'sold') number += 1;
    const kind = { sold: number > items ? 'over' : 'sold', soldOut: 'soldOut', failed: 'failed' }[answer] ?? '';
    if (square.className !== kind) square.className = kind;
  }
}

function showLock({ provider, holder, waiting, expiresIn }) {
  setText(find('holder'), holder ? `process ${holder.process}` : 'nobody');
  setText(find('token'), holder ? grouped(holder.token) : '–');
  setText(find('waiting'), waiting);
  const isKnown = expiresIn !== null;
  leaseLength = isKnown ? Math.max(leaseLength, expiresIn) : leaseLength;
  setText(find('lease'), isKnown ? seconds(Math.max(0, expiresIn)) : holder ? `not reported by ${provider}` : '–');
  find('lease-bar').style.transform = `scaleX(${isKnown ? Math.max(0, expiresIn) / leaseLength : 0})`;
}

function stepsOf({ freeze, processes }) {
  if (!freeze || freeze.step === 'armed') return [];
  const { process, token, next, write, lost, isAccepted } = freeze;
  const isTask = processes === 1;
  const steps = [
    { text: `${isTask ? 'One order' : `Process ${process}`} is frozen while it holds token ${grouped(token)}.` },
  ];
  if (next) {
    const entrant = isTask ? 'the next order' : `process ${next.process}`;
    steps.push({ text: `${seconds(next.after)} later, ${entrant} gets the lock, with token ${grouped(next.token)}.` });
  }
  if (write) {
    const resumed = isTask ? 'The frozen order goes on.' : `Process ${process} runs again.`;
    steps.push({ text: `The new holder writes “${write.left} left”. ${resumed}` });
    if (lost) steps.push({ text: `The old holder has lost its lock, reason: ${lost}.` });
  }
  if (isAccepted !== undefined) {
    const answer = isAccepted ? 'The stock accepts it.' : 'The stock refuses it, because it has seen a larger one.';
    steps.push({ text: `The old holder writes with its old token. ${answer}`, className: isAccepted ? '' : 'refused' });
  }
  return steps;
}

function showSteps(state) {
  const list = find('steps');
  const steps = stepsOf(state);
  while (list.children.length > steps.length) list.lastChild.remove();
  for (const [index, { text, className = '' }] of steps.entries()) {
    const item = list.children[index] ?? list.appendChild(document.createElement('li'));
    setText(item, text);
    item.className = className;
  }
}

/** One unit of the drawing is a pixel, so text and bars keep their size on a narrow screen. */
function showWaits({ grants, orders }) {
  const chart = find('waits');
  const { width, height } = chart.getBoundingClientRect();
  // Before the first layout; the observer draws it then.
  if (width === 0) return;
  const [left, bottom] = [36, 28];
  const waits = grants.map(({ waited }) => waited);
  const longest = Math.max(...waits, 0);
  const top = Math.max(1_000, Math.ceil(longest / 1_000) * 1_000);
  const y = (waited) => height - bottom - (waited / top) * (height - bottom - 10);
  const step = (width - left) / orders;
  const parts = [];
  const every = Math.max(1, Math.ceil(top / 4_000)) * 1_000;
  for (let at = 0; at <= top; at += every) {
    parts.push(element('line', { x1: left, x2: width, y1: y(at), y2: y(at) }));
    parts.push(element('text', { x: left - 8, y: y(at) + 4, 'text-anchor': 'end' }, `${at / 1_000} s`));
  }
  for (const [index, { waited, outcome }] of grants.entries()) {
    const tall = Math.max(2, height - bottom - y(waited));
    const place = { x: left + index * step, y: height - bottom - tall, width: step * 0.75, height: tall };
    parts.push(element('rect', { ...place, class: outcome ?? 'holding' }));
  }
  parts.push(element('text', { x: left, y: height - 6 }, 'first order'));
  parts.push(element('text', { x: width, y: height - 6, 'text-anchor': 'end' }, `order ${orders}`));
  chart.replaceChildren(...parts);
  if (waits.length === 0) return;
  const median = waits.toSorted((a, b) => a - b)[Math.floor(waits.length / 2)];
  setText(
    find('waits-summary'),
    `${waits.length} orders got the lock. Median wait ${seconds(median)}, longest ${seconds(longest)}.`,
  );
}

function showWrites({ writes }) {
  find('writes').replaceChildren(
    ...writes.map(({ token, process, left, isAccepted }) => {
      const row = document.createElement('tr');
      for (const text of [grouped(token), process, left, isAccepted ? 'accepted' : 'refused']) {
        row.insertCell().textContent = text;
      }
      row.cells[2].className = 'number';
      if (!isAccepted) row.cells[3].className = 'refused';
      return row;
    }),
  );
}

/** Describes what happened in words, also for screen readers. */
function announce(state) {
  const { phase, guarded, unguarded, items, freeze } = state;
  const sold = ({ answers }) => answers.filter((answer) => answer === 'sold').length;
  let text = '';
  if (phase === 'open')
    text = stepsOf(state).at(-1)?.text ?? (freeze ? 'The next holder will be frozen.' : 'The sale is open.');
  if (phase === 'closed') {
    text = `The sale is over. Without a lock ${sold(unguarded)} of ${items} were sold, with a lock ${sold(guarded)}.`;
  }
  if (text !== announced) setText(find('status'), (announced = text));
}

function element(name, attributes, text = '') {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.textContent = text;
  return made;
}

function setText(node, value) {
  const text = String(value);
  if (node.textContent !== text) node.textContent = text;
}

function disable(button, isDisabled) {
  button.setAttribute('aria-disabled', String(Boolean(isDisabled)));
}

/** Formats a number with groups of three digits. */
function grouped(token) {
  return token.replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

function seconds(milliseconds) {
  return `${(milliseconds / 1_000).toFixed(1)} s`;
}
