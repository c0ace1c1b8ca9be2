// The learned f, a box for each layer.

function showModulation() {
  const row = findVariant(byId('modulation-variant').value);
  fillSelect(byId('modulation-seed'), row.modulation.map(({seed}) => [String(seed), String(seed)]));
  const {layers, numbers} = row.modulation.find(({seed}) => String(seed) === byId('modulation-seed').value);
  const nameOfLayer = (layer) => layerName(numbers?.[layer] ?? layer, row);
  const all = layers.flat(2), low = Math.min(0, ...all), high = Math.max(0, ...all);
  byId('modulation-key').replaceChildren(...layers[0].map((_, head) => element('span', {},
    element('i', {class: 'swatch', style: `background: var(--series-${head % 7})`}), `head ${head + 1}`)));
  const boxes = layers.map((_, layer) => {
    const canvas = element('canvas', {id: `modulation-${layer}`, role: 'img'});
    return element('figure', {}, element('figcaption', {}, `Layer ${nameOfLayer(layer)}`),
      element('div', {class: 'chart'}, canvas));
  });
  const place = byId('modulation-charts');
  if (hasCharts) place.querySelectorAll('canvas').forEach((canvas) => Chart.getChart(canvas)?.destroy());
  place.replaceChildren(...boxes);
  layers.forEach((curves, layer) => {
    const ends = curves.map((f, head) => `head ${head + 1} from ${significant(f[0])} to ${significant(f.at(-1))}`);
    const alternative = `f against the number of steps k in layer ${nameOfLayer(layer)}: ${ends.join(', ')}.`;
    drawChart(byId(`modulation-${layer}`), alternative, () => ({
      type: 'line',
      data: {datasets: curves.map((f, head) => ({label: `head ${head + 1}`, data: f.map((y, x) => ({x, y})),
        borderWidth: 2, pointRadius: 2, ...lineColours(`series-${head % 7}`)}))},
      options: {
        interaction: {mode: 'index', intersect: false},
        scales: {
          x: axis('k', wholeNumbers),
          y: {suggestedMin: low, suggestedMax: high},
        },
        plugins: {
          legend: {display: false},
          tooltip: {callbacks: {title: (items) => `k = ${items[0].parsed.x}`}},
        },
      },
    }));
  });
  const hops = layers[0][0].map((_, k) => `k = ${k}`);
  showNumbers('modulation-data', `f of ${row.variant}`, ['Layer and head', ...hops],
    layers.flatMap((curves, layer) => curves.map((f, head) => [`${nameOfLayer(layer)}, ${head + 1}`, ...f.map(significant)])));
}

function startModulation() {
  const rows = report.variants.filter((row) => row.modulation.length > 0);
  if (rows.length === 0) {
    nothingToShow('modulation', 'None of these variants has an f: train grf, softmax+grf, power-series or ad-hoc.');
    return;
  }
  fillSelect(byId('modulation-variant'), rows.map(({variant}) => [variant, variant]), 'grf');
  byId('modulation-variant').addEventListener('change', showModulation);
  byId('modulation-seed').addEventListener('change', showModulation);
  showModulation();
}
