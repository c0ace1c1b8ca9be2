// The head of the page, the table of results and the settings.

const aboutAttention = {
  'softmax': 'Unmasked softmax attention, O(N²).',
  'softmax+grf': 'Softmax weights times the mask of walks.',
  'softmax+grf-bias': 'Softmax; the mask of walks is added to the logits.',
  'linear': 'Unmasked linear attention, O(N).',
  'performer': 'Unmasked; random features of the softmax kernel (FAVOR+), O(N).',
  'performer+grf': 'These random features with the mask of walks, O(N).',
  'toeplitz': 'Linear; one weight for each offset between two patches.',
  'power-series': 'Linear; the exact mask, a power series of the grid.',
  'grf': 'Linear; the mask estimated by random walks, O(N).',
  'grf-asymmetric': 'Linear; walks on the side of the queries alone.',
  'ad-hoc': 'Linear; walks without importance weights.',
  'learned-features': 'Linear; a free feature for each patch in place of walks.',
  'neighbours': 'Linear; 1 between neighbours on the grid, else 0.',
};

const findVariant = (name) => report.variants.find((row) => row.variant === name);

// Mean difference in points and its standard error: seeds are independent runs of either variant.
function difference(a, b) {
  const known = a.accuracy_se !== null && b.accuracy_se !== null;
  return {mean: a.accuracy_mean - b.accuracy_mean, error: known ? Math.hypot(a.accuracy_se, b.accuracy_se) : null};
}

function points({mean, error}) {
  const sign = mean < 0 ? '−' : '+';
  return `${sign}${Math.abs(100 * mean).toFixed(1)}` + (error === null ? '' : ` ± ${(100 * error).toFixed(1)}`);
}

function showHead() {
  const best = report.variants.reduce((a, b) => (b.accuracy_mean > a.accuracy_mean ? b : a));
  const runs = report.variants.reduce((sum, row) => sum + row.seeds.length, 0);
  byId('summary').append(
    `${report.variants.length === 1 ? 'One variant' : report.variants.length + ' variants'} of attention, ` +
    `${runs === 1 ? 'one run' : runs + ' runs'} of ${report.epochs} epochs on `,
    element('strong', {}, report.data), `: ${report.training_images.toLocaleString('en')} ${sampleName}s to learn from, `,
    `${report.validation_images.toLocaleString('en')} to be judged on.`);

  const figure = (value, text) => element('div', {class: 'figure'}, element('b', {}, value), element('span', {}, text));
  const figures = [figure(percent(best.accuracy_mean), `the best accuracy, ${best.variant}`)];
  const linear = findVariant('linear'), grf = findVariant('grf'), softmax = findVariant('softmax');
  if (linear && grf)
    figures.push(figure(points(difference(grf, linear)), 'points: grf over unmasked linear attention'));
  if (softmax && grf) figures.push(figure(points(difference(grf, softmax)), 'points: grf over softmax attention'));
  if (grf) figures.push(figure(formatSeconds(grf.epoch_seconds), `an epoch with grf on ${report.device}`));
  byId('figures').append(...figures);
}

const background = ({variant}) => `background: var(--${seriesNames.get(variant)})`;

// Where a mean and its standard error lie between the least and the greatest of all, without the numbers.
function strip(row, low, high) {
  const mean = row.accuracy_mean, error = row.accuracy_se ?? 0;
  const place = (value) => (high > low ? 100 * (value - low) / (high - low) : 50);
  const bar = `left: ${place(mean - error)}%; right: ${100 - place(mean + error)}%`;
  return element('span', {class: 'strip', 'aria-hidden': 'true'},
    element('i', {style: `${background(row)}; ${bar}`}),
    element('b', {style: `${background(row)}; left: ${place(mean)}%`}));
}

function showTable() {
  const linear = findVariant('linear');
  const edge = (sign) => report.variants.map((row) => row.accuracy_mean + sign * (row.accuracy_se ?? 0));
  const low = Math.min(...edge(-1)), high = Math.max(...edge(1));
  const compares = linear && report.variants.length > 1;
  const headers = ['Variant', 'Accuracy', ...(compares ? ['Over linear, points'] : []), 'Loss', 'Time per epoch',
    frameCount > 1 ? 'Clips per second' : 'Images per second', 'Parameters', 'Seeds'];
  const rows = report.variants.map((row) => {
    const name = element('span', {}, element('i', {class: 'swatch', style: background(row)}), row.variant,
      element('small', {}, aboutVariant(row)));
    const accuracy = element('span', {}, plusMinus(row.accuracy_mean, row.accuracy_se, 2),
      ...(report.variants.length > 1 ? [strip(row, low, high)] : []));
    const gain = row === linear ? '–' : points(difference(row, linear ?? row));
    const loss = row.loss_mean === null ? '–' : row.loss_mean.toFixed(4);
    return [name, accuracy, ...(compares ? [gain] : []), loss, formatSeconds(row.epoch_seconds),
      Math.round(row.images_per_second).toLocaleString('en'), row.parameters.toLocaleString('en'), String(row.seeds.length)];
  });
  fillTable(byId('results'), 'Results of all variants', headers, rows);
}

function aboutVariant(row) {
  const walks = row.variant.match(/^grf-walks-(\d+)$/);
  if (walks) return `As grf, with ${walks[1]} ${walks[1] === '1' ? 'walk' : 'walks'} from every patch and p_halt ½.`;
  const [name, ...changes] = row.variant.split('@');
  if (changes.length > 0) return `As ${name}, with ${changes.join(', ').replaceAll('=', ' = ')}.`;
  const control = {shuffled: 'Control: all frames, in a random order.', single: 'Control: one frame in place of all.'};
  const where = row.encoder === 'joint' ? ' All tubelets at once.' :
    row.temporal_attention && row.temporal_attention !== 'softmax' ? ` Between moments: ${row.temporal_attention}.` : '';
  return control[row.frame_order] ?? (aboutAttention[row.attention] ?? '') + where;
}

function showSettings() {
  const facts = {
    [frameCount > 1 ? 'Clips' : 'Images']: report.data,
    'Classes': String(report.classes.length),
    'Patches': `${report.grid[0]} × ${report.grid[1]} of ${report.patch} × ${report.patch} pixels`,
    ...(frameCount > 1 && {'Frames': `${frameCount}, ${report.tubelet} in a tubelet`}),
    'Layers and heads': `${report.layers} and ${report.heads}`,
    'Epochs': String(report.epochs),
    'Device': report.device,
  };
  for (const [name, value] of Object.entries(facts))
    byId('facts').append(element('div', {}, element('dt', {}, name), element('dd', {}, value)));
  byId('train-command').textContent = `topomask train ${frameCount > 1 ? 'vivit' : 'vit'} --config`;
  byId('config').textContent = report.config;
  byId('colophon').textContent =
    `Written by “${report.command}” on ${report.machine}` + (hasCharts ? `; charts by Chart.js ${Chart.version}.` : '.');
}
