// Accuracy and loss against the epoch.

const curveMetrics = {
  accuracy: ['Validation accuracy', '%', 100],
  loss: ['Validation loss', '', 1],
  train_accuracy: ['Accuracy while training', '%', 100],
  train_loss: ['Loss while training', '', 1],
};

// Three lines a variant: the edges of the band, the second filled to the first, then the mean.
function curveDatasets(row, curve, factor) {
  const series = seriesNames.get(row.variant);
  const line = (values) => values.map((y, i) => ({x: curve.epoch[i], y: factor * y}));
  const shared = {label: row.variant, pointRadius: 0, tension: 0};
  const datasets = [{...shared, ...lineColours(series), data: line(curve.mean), errors: curve.se, borderWidth: 2.5,
    borderDash: isAblation(row) ? [6, 4] : [], pointRadius: curve.mean.length < 2 ? 5 : 0, pointHoverRadius: 5}];
  if (curve.se !== null) {
    const edge = {...shared, band: true, borderWidth: 0, pointHoverRadius: 0, backgroundColor: colour(series, 0.16)};
    datasets.unshift({...edge, data: line(curve.mean.map((y, i) => y - curve.se[i])), fill: false},
      {...edge, data: line(curve.mean.map((y, i) => y + curve.se[i])), fill: '-1'});
  }
  return datasets;
}

function toggleVariant(event, item, legend) {
  const chart = legend.chart, hide = chart.isDatasetVisible(item.datasetIndex);
  chart.data.datasets.forEach((dataset, i) => {
    if (dataset.label === item.text) chart.setDatasetVisibility(i, !hide);
  });
  chart.update();
}

function showCurves() {
  const metric = byId('curve-metric').value, [title, unit, factor] = curveMetrics[metric];
  const group = byId('curve-group').value;
  const rows = report.variants.filter((row) => row.curves[metric].epoch.length > 0 &&
    (group === 'all' || isAblation(row) === (group === 'ablation') || (group === 'ablation' && row.variant === 'grf')));
  const text = (value) => (unit === '%' ? percent(value) : value.toFixed(4));
  const ends = rows.map((row) => `${row.variant} ${text(row.curves[metric].mean.at(-1))}`);
  const alternative = `${title} against epoch. At the end: ${ends.join(', ')}.`;
  const tooltip = ({dataset, parsed, dataIndex}) => {
    const error = dataset.errors ? ' ± ' + significant(factor * dataset.errors[dataIndex]) : '';
    return ` ${dataset.label}: ${unit === '%' ? parsed.y.toFixed(2) : parsed.y.toFixed(4)}${error} ${unit}`;
  };
  drawChart(byId('curve-chart'), alternative, () => ({
    type: 'line',
    data: {datasets: rows.flatMap((row) => curveDatasets(row, row.curves[metric], factor))},
    options: {
      interaction: {mode: 'index', intersect: false},
      scales: {
        x: axis('Epoch', wholeNumbers),
        y: axis(title + (unit ? `, ${unit}` : '')),
      },
      plugins: {
        legend: {onClick: toggleVariant, labels: {...lineLabels,
          filter: (item, data) => !data.datasets[item.datasetIndex].band}},
        tooltip: {filter: (item) => !item.dataset.band, itemSort: (a, b) => b.parsed.y - a.parsed.y,
          callbacks: {title: (items) => (items.length ? `Epoch ${items[0].parsed.x}` : ''), label: tooltip}},
      },
    },
  }));
  const epochs = [...new Set(rows.flatMap((row) => row.curves[metric].epoch))].sort((a, b) => a - b);
  const cell = (row, epoch) => {
    const i = row.curves[metric].epoch.indexOf(epoch);
    return i < 0 ? '' : text(row.curves[metric].mean[i]);
  };
  showNumbers('curve-data', alternative, ['Epoch', ...rows.map((row) => row.variant)],
    epochs.map((epoch) => [String(epoch), ...rows.map((row) => cell(row, epoch))]));
}

function startCurves() {
  if (!report.variants.some((row) => row.curves.train_loss.epoch.length > 0)) {
    nothingToShow('curves', 'The runs left no metrics.jsonl.');
    return;
  }
  fillSelect(byId('curve-metric'), Object.entries(curveMetrics).map(([key, [title]]) => [key, title]));
  const groups = [['all', 'all variants']];
  if (report.variants.some(isAblation) && !report.variants.every(isAblation))
    groups.unshift(['kinds', 'kinds of attention'], ['ablation', 'numbers of walks']);
  fillSelect(byId('curve-group'), groups);
  byId('curve-group').parentElement.hidden = groups.length === 1;
  for (const id of ['curve-metric', 'curve-group']) byId(id).addEventListener('change', showCurves);
  showCurves();
}
