// Quality against the step of a rollout.

function stepDatasets(row, metric) {
  const factor = stepMetrics[metric][2], series = seriesOf(row);
  const known = row.steps.filter((entry) => entry[metric]);
  const line = (value) => known.map((entry) => ({x: entry.step, y: factor * value(...entry[metric])}));
  const shared = {label: row.variant, pointRadius: 0, tension: 0}, reference = baselines.includes(row);
  const datasets = [{...shared, ...lineColours(series), data: line((mean) => mean), borderWidth: reference ? 1.5 : 2.5,
    errors: known.map((entry) => entry[metric][1]), borderDash: row.variant === 'oracle' ? [2, 3] : reference || isAblation(row) ? [6, 4] : [],
    pointRadius: known.length < 2 ? 5 : 2, pointHoverRadius: 5}];
  if (known.length > 0 && known.every((entry) => entry[metric][1] !== null)) {
    const edge = {...shared, band: true, borderWidth: 0, pointHoverRadius: 0, backgroundColor: colour(series, 0.16)};
    datasets.unshift({...edge, data: line((mean, error) => mean - error), fill: false},
      {...edge, data: line((mean, error) => mean + error), fill: '-1'});
  }
  return datasets;
}

function toggleRow(event, item, legend) {
  const chart = legend.chart, hide = chart.isDatasetVisible(item.datasetIndex);
  chart.data.datasets.forEach((dataset, i) => {
    if (dataset.label === item.text) chart.setDatasetVisibility(i, !hide);
  });
  chart.update();
}

function showCurves() {
  const metric = byId('curve-metric').value, [title, unit, factor, digits] = stepMetrics[metric];
  const rows = allRows.filter((row) => row.steps.some((entry) => entry[metric]));
  const last = (row) => row.steps.filter((entry) => entry[metric]).at(-1);
  const ends = rows.map((row) => `${row.variant} ${scoreText(last(row)[metric], metric)} at step ${last(row).step}`);
  const alternative = `${title} against the step of a rollout: ${ends.join(', ')}.`;
  drawChart(byId('curve-chart'), alternative, () => ({
    type: 'line',
    data: {datasets: rows.flatMap((row) => stepDatasets(row, metric))},
    options: {
      interaction: {mode: 'index', intersect: false},
      scales: {x: axis('Step', wholeNumbers), y: axis(title + (unit ? `, ${unit}` : ''))},
      plugins: {
        legend: {onClick: toggleRow, labels: {...lineLabels,
          filter: (item, data) => !data.datasets[item.datasetIndex].band}},
        tooltip: {filter: (item) => !item.dataset.band, itemSort: (a, b) => b.parsed.y - a.parsed.y,
          callbacks: {title: (items) => (items.length ? `Step ${items[0].parsed.x}` : ''),
            label: ({dataset, parsed, dataIndex}) => {
              const error = dataset.errors[dataIndex];
              return ` ${dataset.label}: ${parsed.y.toFixed(digits)}` +
                (error === null ? '' : ` ± ${(factor * error).toFixed(digits)}`) + ` ${unit}`;
            }}},
      },
    },
  }));
  showNumbers('curve-data', alternative, ['Step', ...rows.map((row) => row.variant)],
    allSteps.map((step) => [String(step), ...rows.map((row) => scoreText(scoreAt(row, metric, step), metric))]));
}

function startCurves() {
  if (knownMetrics.length === 0) {
    nothingToShow('curves', 'The runs left no scores.');
    return;
  }
  fillSelect(byId('curve-metric'), knownMetrics.map((metric) => [metric, stepMetrics[metric][0]]));
  byId('curve-metric').addEventListener('change', showCurves);
  showCurves();
}
