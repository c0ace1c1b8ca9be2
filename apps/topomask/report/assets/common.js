// What all parts of the page share: the data, small helpers for the document, colours, charts.
'use strict';

const report = JSON.parse(document.getElementById('report-data').textContent);
const byId = (id) => document.getElementById(id);

// element('td', {class: 'x'}, 'text', child, ...): texts are never read as HTML.
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Clips have several frames; `example_frames` of them stand side by side in one picture.
const frameCount = report.frames ?? 1;
const sampleName = frameCount > 1 ? 'clip' : 'image';
// Of a factorised video model the layers after those over patches are over moments.
const layerName = (layer, row) => (layer < report.layers || row.encoder === 'joint' ? String(layer + 1) :
  `time ${layer - report.layers + 1}`);

// null: not a number.
const percent = (part, digits = 1) => (part === null ? '–' : (100 * part).toFixed(digits) + ' %');
const plusMinus = (mean, error, digits = 1) =>
  error === null ? percent(mean, digits) : `${(100 * mean).toFixed(digits)} ± ${percent(error, digits)}`;
const significant = (value) =>
  (value === null ? '–' : Math.abs(value) < 1e-12 ? '0' : Number(value.toPrecision(3)).toString());

function formatSeconds(seconds) {
  if (seconds < 10) return seconds.toFixed(2) + ' s';
  return seconds < 120 ? seconds.toFixed(1) + ' s' : (seconds / 60).toFixed(1) + ' min';
}

// headers: texts; rows: arrays of texts or nodes, the first of which names the row.
function fillTable(table, caption, headers, rows) {
  table.replaceChildren(
    element('caption', {class: 'skip'}, caption),
    element('thead', {}, element('tr', {}, ...headers.map((text) => element('th', {scope: 'col'}, text)))),
    element('tbody', {}, ...rows.map(([name, ...cells]) =>
      element('tr', {}, element('th', {scope: 'row'}, name), ...cells.map((cell) => element('td', {}, cell))))));
  return table;
}

// The numbers of a chart, for those who want them or cannot see it.
function showNumbers(id, caption, headers, rows) {
  byId(id).replaceChildren(fillTable(element('table'), caption, headers, rows));
}

// choices: [[value, text], ...]. Keeps what was chosen where it is still there.
function fillSelect(select, choices, preferred) {
  const wanted = [select.value, preferred].find((value) => choices.some((choice) => choice[0] === value));
  select.replaceChildren(...choices.map(([value, text]) => element('option', {value}, text)));
  if (wanted !== undefined) select.value = wanted;
}

// The ArrayBuffer of deflated bytes in base 64.
function inflate(text) {
  const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(stream).arrayBuffer();
}

// Replaces a section's content where the runs leave nothing to show.
function nothingToShow(section, reason) {
  const parts = [...byId(section).children].filter((child) => child.tagName !== 'H2');
  parts.forEach((part) => { part.hidden = true; });
  byId(section).append(element('p', {class: 'missing'}, reason));
}

// A colour of the style sheet as the canvas wants it: light or dark is decided by then.
function colour(name, alpha = 1) {
  const probe = document.body.appendChild(element('span', {style: `color: var(--${name})`}));
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\d.]+/g);
  probe.remove();
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

// GRF stands out and unmasked linear attention stays back, whatever else is there. Numbers of walks and other
// changed settings are ablations: they repeat colours and are dashed.
const isAblation = ({variant}) => variant.startsWith('grf-walks-') || variant.includes('@');
const seriesNames = (() => {
  const fixed = {grf: 0, linear: 7}, free = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11];
  const ablations = report.variants.filter(isAblation);
  const others = report.variants.filter((row) => !isAblation(row) && !(row.variant in fixed));
  const number = (row) => fixed[row.variant] ?? free[(isAblation(row) ? ablations : others).indexOf(row) % free.length];
  return new Map(report.variants.map((row) => [row.variant, `series-${number(row)}`]));
})();

const hasCharts = typeof Chart !== 'undefined';
const charts = new Map();  // id of a canvas -> how to draw it again

// configure() gives a Chart.js configuration with the colours of the moment; alternative is the text for those who
// cannot see it.
function drawChart(canvas, alternative, configure) {
  canvas.setAttribute('aria-label', alternative);
  if (!hasCharts) {
    canvas.parentElement.hidden = true;
    return;
  }
  const draw = () => {
    Chart.getChart(canvas)?.destroy();
    Chart.defaults.color = colour('soft');
    Chart.defaults.borderColor = colour('line');
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    const configuration = configure();
    configuration.options = {animation: false, maintainAspectRatio: false, ...configuration.options};
    new Chart(canvas, configuration);
  };
  charts.set(canvas.id, draw);
  draw();
}

const axis = (title, more = {}) => ({title: {display: true, text: title}, ...more});
const wholeNumbers = {type: 'linear', ticks: {precision: 0}, grid: {display: false}};
const lineColours = (series) => ({borderColor: colour(series), backgroundColor: colour(series)});
// Names in a legend stand beside a piece of their line, dashes and all.
const lineLabels = {boxWidth: 24, boxHeight: 0};
