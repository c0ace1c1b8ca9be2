// The head of the page of a particle experiment, its table and its settings.

// key: title, unit, factor, digits, whether more is better, name in the table.
const stepMetrics = {
  ssim_moving: ['SSIM, moving pixels', '', 1, 3, true, 'SSIM, moving'],
  ssim: ['SSIM', '', 1, 3, true, 'SSIM'],
  psnr_moving: ['PSNR, moving pixels', 'dB', 1, 2, true, 'PSNR, moving'],
  psnr: ['PSNR', 'dB', 1, 2, true, 'PSNR'],
  chamfer: ['Chamfer distance', 'mm', 1000, 1, false, 'Chamfer'],
  flow_arm: ['Error of moving arm particles', 'mm', 1000, 1, false, 'Arms'],
  flow_object: ['Error of moving object particles', 'mm', 1000, 1, false, 'Objects'],
  flow_grain: ['Error of moving grain particles', 'mm', 1000, 1, false, 'Grains'],
  object_position: ['Error of the places of moving objects', 'mm', 1000, 1, false, 'Poses'],
  object_rotation: ['Error of the rotations of moving objects', '°', 1, 1, false, 'Rotations'],
};

const aboutLocal = {
  'grf': 'Linear attention under a mask of walks on nearest neighbours.',
  'mp': 'Messages from neighbours to anchors and back.',
  'none': 'Unmasked linear attention in place of a local layer.',
  'softmax': 'Softmax attention over nearest neighbours.',
  'copy': 'The last frame that was seen, again.',
  'oracle': 'The first particles, carried by the true motion.',
};
const aboutRow = ({variant, local}) => {
  const [name, ...changes] = variant.split('@');
  return changes.length > 0 ? `As ${name}, with ${changes.join(', ').replaceAll('=', ' = ')}.` :
    aboutLocal[variant] ?? aboutLocal[local] ?? '';
};

// Variants, then the two rows to compare them with.
const baselines = ['copy', 'oracle'].filter((name) => report[name]).map((name) => ({variant: name, ...report[name]}));
const allRows = [...report.variants, ...baselines];
const seriesOf = ({variant}) => seriesNames.get(variant) ?? (variant === 'copy' ? 'series-7' : 'ink');

// [mean, error or null] of a row at a step, or null where it is not known.
const scoreAt = (row, metric, step) => row.steps.find((entry) => entry.step === step)?.[metric] ?? null;
const allSteps = [...new Set(allRows.flatMap((row) => row.steps.map(({step}) => step)))].sort((a, b) => a - b);
const knownMetrics = Object.keys(stepMetrics).filter((metric) => report.variants.some((row) =>
  row.steps.some((entry) => entry[metric])));

function scoreText(score, metric) {
  if (score === null) return '–';
  const [, , factor, digits] = stepMetrics[metric], [mean, error] = score;
  return (factor * mean).toFixed(digits) + (error === null ? '' : ` ± ${(factor * error).toFixed(digits)}`);
}

function showHead() {
  const runs = report.variants.reduce((sum, row) => sum + row.seeds.length, 0), last = allSteps.at(-1);
  byId('summary').append(
    `${report.variants.length === 1 ? 'One local layer' : report.variants.length + ' local layers'}, ` +
    `${runs === 1 ? 'one run' : runs + ' runs'} on `, element('strong', {}, report.data),
    `, judged by rollouts of ${last} steps.`);
  const metric = knownMetrics[0];
  if (!metric) return;
  const [title, unit] = stepMetrics[metric], figures = [];
  const figure = (value, text) => element('div', {class: 'figure'}, element('b', {}, value), element('span', {}, text));
  const scored = report.variants.filter((row) => scoreAt(row, metric, last));
  const better = (a, b) => (stepMetrics[metric][4] === scoreAt(a, metric, last)[0] > scoreAt(b, metric, last)[0] ? a : b);
  if (scored.length > 0) {
    const best = scored.reduce(better);
    figures.push(figure(scoreText(scoreAt(best, metric, last), metric) + (unit ? ` ${unit}` : ''),
      `${title} at step ${last}, ${best.variant}: the best`));
  }
  for (const row of baselines.filter((candidate) => scoreAt(candidate, metric, last)))
    figures.push(figure(scoreText(scoreAt(row, metric, last), metric), `${title} at step ${last}, ${row.variant}`));
  const grf = report.variants.find(({variant}) => variant === 'grf');
  if (grf && Number.isFinite(grf.step_seconds))
    figures.push(figure(`${(1000 * grf.step_seconds).toFixed(1)} ms`, `a predicted step with grf${report.device ? ` on ${report.device}` : ''}`));
  byId('figures').append(...figures);
}

function showTable() {
  const step = Number(byId('table-step').value);
  const megabytes = (bytes) => (Number.isFinite(bytes) ? (bytes / 1e6).toFixed(0) : '–');
  const milliseconds = (seconds) => (Number.isFinite(seconds) ? (1000 * seconds).toFixed(1) : '–');
  const headers = ['Variant', ...knownMetrics.map((metric) => stepMetrics[metric][5] +
    (stepMetrics[metric][1] ? `, ${stepMetrics[metric][1]}` : '')), 'Step, ms', 'Memory, MB', 'Parameters', 'Seeds'];
  const rows = allRows.map((row) => {
    const name = element('span', {}, element('i', {class: 'swatch', style: `background: var(--${seriesOf(row)})`}),
      row.variant, element('small', {}, aboutRow(row)));
    return [name, ...knownMetrics.map((metric) => scoreText(scoreAt(row, metric, step), metric)),
      milliseconds(row.step_seconds), megabytes(row.memory_bytes), row.parameters?.toLocaleString('en') ?? '–',
      row.seeds ? String(row.seeds.length) : '–'];
  });
  fillTable(byId('results'), `All variants at step ${step}`, headers, rows);
}

function startTable() {
  fillSelect(byId('table-step'), allSteps.map((step) => [String(step), String(step)]), String(allSteps.at(-1)));
  byId('table-step').addEventListener('change', showTable);
  showTable();
}

function showSettings() {
  const facts = {
    'Episodes': report.data,
    'Steps judged': String(allSteps.length),
    'Device': report.device,
    'Particles': report.particles?.toLocaleString('en'),
  };
  for (const [name, value] of Object.entries(facts)) {
    if (value) byId('facts').append(element('div', {}, element('dt', {}, name), element('dd', {}, value)));
  }
  byId('config').textContent = report.config;
  byId('colophon').textContent =
    `Written by “${report.command}” on ${report.machine}` + (hasCharts ? `; charts by Chart.js ${Chart.version}.` : '.');
}
