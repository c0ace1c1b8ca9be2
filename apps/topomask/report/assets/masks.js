// The row of a mask that belongs to a chosen patch, as maps and against distance.
//
// A mask arrives as N x N bytes, deflated, whose meaning data.h states. It is unpacked when it is first looked at.

const mapState = {patch: 0, panels: [], request: 0, grid: [], moments: 1, rows: 0, columns: 0};

// The grid of a layer's tokens: rows and columns of patches, moments of a clip in one row, or moments of rows and
// columns, one below the other.
function useGrid(grid) {
  if (String(grid) === String(mapState.grid)) return;
  const [moments, rows, columns] = [...new Array(3 - grid.length).fill(1), ...grid];
  const middle = (count) => Math.floor(count / 2);
  Object.assign(mapState, {grid, moments, rows, columns,
    patch: (middle(moments) * rows + middle(rows)) * columns + middle(columns)});
}

const countPatches = () => mapState.moments * mapState.rows * mapState.columns;
function placeOf(patch) {
  const {rows, columns} = mapState;
  return [Math.floor(patch / (rows * columns)), Math.floor(patch / columns) % rows, patch % columns];
}
function nameOf(patch) {
  const [moment, row, column] = placeOf(patch);
  if (mapState.grid.length === 1) return `moment ${column + 1}`;
  return (mapState.grid.length === 3 ? `moment ${moment + 1}, ` : '') + `row ${row + 1}, column ${column + 1}`;
}
function stepsBetween(a, b) {
  const other = placeOf(b);
  return placeOf(a).reduce((sum, place, axis) => sum + Math.abs(place - other[axis]), 0);
}

// mask: {max, signed, bytes (base64)}; remembers what it unpacked.
async function unpack(mask) {
  mask.values ??= new Uint8Array(await inflate(mask.bytes));
}

// The row of a patch as parts of the sum of its magnitudes.
function rowShares(mask, patch) {
  const patches = countPatches();
  const row = Array.from(mask.values.subarray(patch * patches, (patch + 1) * patches), (byte) => {
    const root = mask.signed ? (byte - 128) / 127 : byte / 255;
    return root * Math.abs(root);
  });
  const sum = row.reduce((a, b) => a + Math.abs(b), 0) || 1;
  return row.map((value) => value / sum);
}

const entryOf = (row, layer) => row?.masks?.layers.find((entry) => entry.layer === layer);
const masksOf = (row, layer) => entryOf(row, layer)?.heads;

// What a mask does to attention.
const useOf = (attention) => (attention === 'softmax+grf-bias' ? 'added to the logits' : 'multiplies the weights');

// What to draw for a variant, layer and head: its mask, what it estimates, and the Toeplitz mask for comparison.
function chosenPanels(row, layer, head) {
  const own = masksOf(row, layer)[head], panels = [], {attention} = entryOf(row, layer);
  const titles = {
    'power-series': ['Exact', 'a power series of the grid'],
    'toeplitz': ['Toeplitz', 'a weight for each offset'],
  };
  // Ad-hoc walks do not estimate the power series.
  const [limit, about] = attention === 'ad-hoc' ? ['Expected', 'what infinitely many ad-hoc walks would give']
    : ['Exact', 'with the f of this head'];
  if (own.exact) panels.push({title: limit, note: about, mask: own.exact, series: 'series-2'});
  const [title, note] = own.exact ? ['Estimated', `by ${row.masks.walks} walks per patch`]
    : titles[attention] ?? [row.variant, 'as it was learned'];
  panels.push({title, note: `${note}; ${useOf(attention)}`, mask: own.used, series: 'series-0', error: own.error});
  const toeplitz = findVariant('toeplitz'), other = masksOf(toeplitz, layer)?.[head];
  const sameGrid = String(entryOf(toeplitz, layer)?.grid) === String(entryOf(row, layer).grid);
  if (row !== toeplitz && other && sameGrid)
    panels.push({title: 'Toeplitz', note: 'of the toeplitz variant', mask: other.used, series: 'series-4'});
  return panels;
}

function makeGrid(kind, label, makeCell) {
  const style = `grid-template-columns: repeat(${mapState.columns}, 1fr)`;
  const grid = element('div', {class: `grid ${kind}`, style, ...label});
  for (let patch = 0; patch < countPatches(); ++patch) grid.append(makeCell(patch));
  grid.addEventListener('click', (event) => {
    const cell = event.target.closest('[data-patch]');
    if (cell) choosePatch(Number(cell.dataset.patch));
  });
  return grid;
}

// The only map with buttons: one stop for the Tab key, arrows move inside.
function makePicker() {
  const picker = makeGrid('picker', {role: 'group', 'aria-label': 'Patches of an image, to choose from'}, (patch) =>
    element('button', {type: 'button', class: 'cell', tabindex: '-1', 'data-patch': patch,
      'aria-label': `Patch in ${nameOf(patch)}`}));
  picker.addEventListener('keydown', (event) => {
    const {columns} = mapState, row = Math.floor(mapState.patch / columns), column = mapState.patch % columns;
    const target = {ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1]}[event.key];
    if (!target) return;
    event.preventDefault();
    if (target[0] < 0 || target[0] >= mapState.moments * mapState.rows || target[1] < 0 || target[1] >= columns) return;
    choosePatch(target[0] * columns + target[1]);
    picker.children[mapState.patch].focus();
  });
  if (report.examples.length > 0 && mapState.grid.length < 3) {
    picker.style.backgroundImage = `url(${report.examples[0].image})`;
    // Of a clip, whose frames stand side by side: one under its patches, all under its moments.
    if (mapState.grid.length === 2) picker.style.backgroundSize = `${100 * report.example_frames}% 100%`;
  }
  return picker;
}

function figureOf(title, note, grid) {
  return element('figure', {}, element('figcaption', {}, title, element('small', {}, note)), grid);
}

function buildMaps() {
  const row = findVariant(byId('mask-variant').value);
  fillSelect(byId('mask-layer'), row.masks.layers.map(({layer}) => [String(layer), layerName(layer, row)]));
  const layer = Number(byId('mask-layer').value);
  useGrid(entryOf(row, layer).grid ?? report.grid);
  fillSelect(byId('mask-head'), masksOf(row, layer).map((_, head) => [String(head), String(head + 1)]));
  mapState.panels = chosenPanels(row, layer, Number(byId('mask-head').value));
  for (const panel of mapState.panels)
    panel.grid = makeGrid('heat', {role: 'img'}, (patch) => element('div', {class: 'cell', 'data-patch': patch}));
  const nodes = ['its moments are', 'its patches are', 'its tubelets, moment by moment, are'][mapState.grid.length - 1];
  byId('maps').replaceChildren(figureOf(frameCount > 1 ? 'Clip' : 'Image', `${nodes} the nodes`, makePicker()),
    ...mapState.panels.map(({title, note, grid}) => figureOf(title, note, grid)));
  return showMaps();
}

async function showMaps() {
  const request = ++mapState.request;
  await Promise.all(mapState.panels.map((panel) => unpack(panel.mask)));
  if (request !== mapState.request) return;  // something else was chosen meanwhile
  mapState.panels.forEach((panel) => { panel.shares = rowShares(panel.mask, mapState.patch); });
  const top = Math.max(...mapState.panels.flatMap((panel) => panel.shares.map(Math.abs)));
  const hasSigns = mapState.panels.some((panel) => panel.mask.signed);
  const isNear = (patch) => stepsBetween(patch, mapState.patch) <= 2;
  const near = (panel) => panel.shares.reduce((sum, share, patch) => sum + (isNear(patch) ? Math.abs(share) : 0), 0);
  for (const panel of mapState.panels) {
    panel.grid.setAttribute('aria-label', `${panel.title}: ${percent(near(panel))} of the weight lies within two ` +
      `steps of ${nameOf(mapState.patch)}.`);
    panel.shares.forEach((share, patch) => {
      const cell = panel.grid.children[patch];
      cell.style.setProperty('--share', Math.sqrt(Math.abs(share) / top).toFixed(3));
      cell.classList.toggle('negative', share < 0);
      cell.title = `${nameOf(patch)}: ${percent(share, 2)}`;
    });
  }
  document.querySelectorAll('#maps .grid').forEach((grid) => [...grid.children].forEach((cell, patch) => {
    cell.classList.toggle('chosen', patch === mapState.patch);
    if (cell.tagName === 'BUTTON') {
      cell.tabIndex = patch === mapState.patch ? 0 : -1;
      cell.setAttribute('aria-pressed', String(patch === mapState.patch));
    }
  }));
  byId('mask-scale').classList.toggle('signed', hasSigns);
  byId('mask-scale-low').textContent = hasSigns ? percent(-top) : percent(0, 0);
  byId('mask-scale-top').textContent = percent(top);
  const estimate = mapState.panels.find((panel) => panel.error !== undefined);
  const place = nameOf(mapState.patch);
  byId('mask-status').textContent = `${place[0].toUpperCase()}${place.slice(1)}. Within two steps lies: ` +
    mapState.panels.map((panel) => `${percent(near(panel), 0)} (${panel.title})`).join(', ') + '.' +
    (estimate ? ` The whole estimated mask is off by ${percent(estimate.error, 1)} (squared, relative).` : '') +
    (hasSigns ? ' Some entries are negative: shares are of the sum of magnitudes.' : '');
  showDistances();
}

function showDistances() {
  const furthest = Math.max(...mapState.panels[0].shares.map((_, patch) => stepsBetween(patch, mapState.patch)));
  const profiles = mapState.panels.map((panel) => {
    const sums = new Array(furthest + 1).fill(0), counts = new Array(furthest + 1).fill(0);
    panel.shares.forEach((share, patch) => {
      const steps = stepsBetween(patch, mapState.patch);
      sums[steps] += share;
      counts[steps] += 1;
    });
    return sums.map((sum, steps) => sum / Math.max(counts[steps], 1));
  });
  const ends = mapState.panels.map(({title}, i) => `${title} from ${percent(profiles[i][0])} at the patch itself to ` +
    `${percent(profiles[i].at(-1), 2)} at ${furthest} steps`);
  const alternative = `Mean weight of a patch against its distance from the chosen one: ${ends.join(', ')}.`;
  drawChart(byId('distance-chart'), alternative, () => ({
    type: 'line',
    data: {datasets: mapState.panels.map(({title, series}, i) => ({label: title, borderWidth: 2, pointRadius: 3,
      clip: false, data: profiles[i].map((y, x) => ({x, y: 100 * y})), ...lineColours(series)}))},
    options: {
      interaction: {mode: 'index', intersect: false},
      scales: {x: axis('Steps on the grid', {...wholeNumbers, max: furthest}),
        y: axis('Weight, %', {beginAtZero: true})},
      plugins: {legend: {labels: lineLabels},
        tooltip: {callbacks: {title: (items) => `${items[0].parsed.x} steps away`,
          label: ({dataset, parsed}) => ` ${dataset.label}: ${parsed.y.toFixed(3)} %`}}},
    },
  }));
  showNumbers('distance-data', alternative, ['Steps', ...mapState.panels.map(({title}) => title)],
    profiles[0].map((_, steps) => [String(steps), ...profiles.map((profile) => percent(profile[steps], 3))]));
}

function choosePatch(patch) {
  mapState.patch = patch;
  return showMaps();
}

function startMasks() {
  const rows = report.variants.filter((row) => row.masks);
  if (rows.length === 0) {
    nothingToShow('masks', 'The runs left no masks: their attention has none, or they are too large for a page.');
    return Promise.resolve();
  }
  fillSelect(byId('mask-variant'), rows.map(({variant}) => [variant, variant]), 'grf');
  for (const id of ['mask-variant', 'mask-layer', 'mask-head']) byId(id).addEventListener('change', buildMaps);
  return buildMaps();
}
