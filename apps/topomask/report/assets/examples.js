// Images of the validation set and what a variant says about them.

const className = (index) => report.classes[index] ?? `class ${index}`;

// Probabilities that are not numbers predict nothing.
function isRight(row, number) {
  const [guess, probability] = row.predictions[number].top[0];
  return probability !== null && guess === report.examples[number].label;
}

// How many variants are right, of those that left predictions.
function countRight(number) {
  const rows = report.variants.filter((row) => row.predictions);
  return [rows.filter((row) => isRight(row, number)).length, rows.length];
}

// A clip plays; whoever prefers less motion sees its frames one after the other in a strip.
function picture(source, alternative) {
  if (report.example_frames === 1) return element('img', {src: source, alt: alternative});
  const style = `background-image: url(${source}); --frames: ${report.example_frames}`;
  return element('div', {class: 'clip', role: 'img', 'aria-label': alternative, style});
}

function exampleCard(row, number) {
  const {image, label, index} = report.examples[number], {top} = row.predictions[number];
  const right = isRight(row, number), [agreeing, all] = countRight(number);
  const guesses = top.map(([guess, probability]) => element('li', {},
    element('span', {class: 'guess'},
      element('span', {}, className(guess)), element('span', {}, percent(probability, 0))),
    element('span', {class: 'meter', 'aria-hidden': 'true'}, element('i', {
      style: `width: ${100 * probability}%; background: var(--${guess === label ? 'good' : 'soft'})`}))));
  return element('li', {class: right ? 'right' : 'wrong'},
    picture(image, `Validation ${sampleName} ${index}, ${className(label)}`),
    element('div', {class: 'text'},
      element('span', {class: 'verdict'}, (right ? '✓ ' : '✗ true: ') + className(label)),
      element('ol', {}, ...guesses),
      ...(all > 1 ? [element('p', {class: 'others'}, `${agreeing} of ${all} are right`)] : [])));
}

function showExamples() {
  const row = findVariant(byId('example-variant').value), filter = byId('example-filter').value;
  const numbers = report.examples.map((_, number) => number).filter((number) => {
    const [agreeing, all] = countRight(number);
    if (filter === 'wrong') return !isRight(row, number);
    return filter === 'all' || (agreeing > 0 && agreeing < all);
  });
  byId('example-list').replaceChildren(...numbers.map((number) => exampleCard(row, number)));
  byId('example-count').textContent = `${numbers.length} of ${report.examples.length} ${sampleName}s`;
}

function startExamples() {
  const rows = report.variants.filter((row) => row.predictions);
  if (rows.length === 0) {
    nothingToShow('examples', 'The runs left no example predictions.');
    return;
  }
  fillSelect(byId('example-variant'), rows.map(({variant}) => [variant, variant]), 'grf');
  for (const id of ['example-variant', 'example-filter']) byId(id).addEventListener('change', showExamples);
  const cut = byId('example-cut');
  cut.textContent = report.examples_cut ?? '';
  cut.hidden = !report.examples_cut;
  showExamples();
}
