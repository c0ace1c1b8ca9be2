// Predicted frames beside the true ones, which play.
//
// The frames of a camera arrive side by side in one picture; a window over it shows one of them.

const film = {step: 1, steps: 1, timer: null};
const rolloutRows = report.variants.filter((row) => row.rollout);

function showStep(step) {
  film.step = step;
  byId('rollout-step').value = step;
  byId('rollout-count').textContent = `${step} of ${film.steps}, ${(step * report.step_seconds).toFixed(1)} s`;
  document.querySelectorAll('#films .film').forEach((frame) => {
    const frames = Number(frame.dataset.frames), own = Math.min(step, frames);
    frame.style.backgroundPositionX = frames > 1 ? `${100 * (own - 1) / (frames - 1)}%` : '0%';
    frame.setAttribute('aria-label', `${frame.dataset.name}, step ${own}`);
  });
}

function stopFilm() {
  clearInterval(film.timer);
  film.timer = null;
  byId('play').textContent = 'Play';
  byId('play').setAttribute('aria-pressed', 'false');
}

function playFilm() {
  if (film.timer !== null) {
    stopFilm();
    return;
  }
  byId('play').textContent = 'Pause';
  byId('play').setAttribute('aria-pressed', 'true');
  film.timer = setInterval(() => showStep(film.step % film.steps + 1), 300);
}

function frameOf(row, kind, camera) {
  const {steps, size} = row.rollout, name = `${row.variant}, ${kind}, camera ${camera + 1}`;
  return element('figure', {}, element('figcaption', {}, kind),
    element('div', {class: 'film', role: 'img', 'aria-label': name, 'data-name': name, 'data-frames': steps,
      style: `background-image: url(${row.rollout[kind][camera]}); --frames: ${steps}; ` +
        `aspect-ratio: ${size[1]} / ${size[0]}`}));
}

function showFilms() {
  const camera = Number(byId('rollout-camera').value);
  byId('films').replaceChildren(...rolloutRows.filter((row) => camera < row.rollout.truth.length).map((row) =>
    element('div', {}, element('h3', {}, row.variant, element('small', {},
      ` ${row.rollout.episode}, seed ${row.rollout.seed}`)),
    element('div', {class: 'row'}, ...['truth', 'predicted', 'difference'].map((kind) => frameOf(row, kind, camera))))));
  showStep(Math.min(film.step, film.steps));
}

function startRollouts() {
  if (rolloutRows.length === 0) {
    nothingToShow('rollouts', 'The runs left no rollout.safetensors.');
    return;
  }
  film.steps = Math.max(...rolloutRows.map((row) => row.rollout.steps));
  byId('rollout-step').max = film.steps;
  const cameras = Math.max(...rolloutRows.map((row) => row.rollout.truth.length));
  fillSelect(byId('rollout-camera'), Array.from({length: cameras}, (_, i) => [String(i), String(i + 1)]));
  byId('rollout-camera').parentElement.hidden = cameras < 2;
  byId('rollout-camera').addEventListener('change', showFilms);
  byId('rollout-step').addEventListener('input', () => {
    stopFilm();
    showStep(Number(byId('rollout-step').value));
  });
  byId('play').addEventListener('click', playFilm);
  showFilms();
}
