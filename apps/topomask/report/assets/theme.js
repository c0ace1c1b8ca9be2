// Light and dark, and what a page without Chart.js shows.

function isDark() {
  const chosen = document.documentElement.style.colorScheme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

function applyTheme() {
  byId('theme').textContent = isDark() ? 'Light' : 'Dark';
  byId('theme').setAttribute('aria-label', `Switch to ${isDark() ? 'light' : 'dark'} colours`);
  charts.forEach((draw) => draw());
}

byId('theme').addEventListener('click', () => {
  document.documentElement.style.colorScheme = isDark() ? 'light' : 'dark';
  applyTheme();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', applyTheme);

// Called once, when the page is filled; the tests wait for the mark.
function finishPage() {
  applyTheme();
  if (!hasCharts) {
    byId('no-charts').hidden = false;
    document.querySelectorAll('details.data').forEach((details) => { details.open = true; });
  }
  document.documentElement.dataset.ready = 'yes';
}
