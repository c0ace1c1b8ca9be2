// The tokens that a step is predicted from, which can be turned, and the model's graph around one of them.
//
// Positions arrive as 16-bit numbers between the corners of a box. The graph, where there is one, has the degree of every
// token of every step in 16 bits and all neighbours in 32. Both are unpacked when they are first looked at.

const cloud = {
  row: null, data: null, step: 0, chosen: null, hops: [],
  turn: 0.4, rise: 0.55, zoom: 1, middle: [0, 0, 0], close: false, screen: null, request: 0,
};
const cloudRows = report.variants.filter((row) => row.rollout?.cloud);
const kKinds = ['particle', 'particle of the moment before', "point of the robot"];
const kHopSeries = ['chosen', 'series-4', 'series-2', 'series-0', 'series-3', 'series-5'];

async function unpackCloud(packed) {
  if (packed.unpacked) return packed.unpacked;
  const {count, steps, low, high} = packed;
  const [places, colours] = await Promise.all([packed.positions, packed.colours].map(inflate));
  const steps16 = new Uint16Array(places), positions = new Float32Array(steps16.length);
  for (let i = 0; i < steps16.length; ++i)
    positions[i] = low[i % 3] + (high[i % 3] - low[i % 3]) * steps16[i] / 65535;
  const rgb = new Uint8Array(colours);
  packed.unpacked = {count, steps, positions, low, high, ...await unpackGraph(packed),
    paint: Array.from({length: count}, (_, i) => `rgb(${rgb[3 * i]} ${rgb[3 * i + 1]} ${rgb[3 * i + 2]})`)};
  return packed.unpacked;
}

// ends[i]: where the neighbours of token i - 1 end and those of i begin, over all steps.
async function unpackGraph(packed) {
  if (!packed.links) return {};
  const [degrees, links] = await Promise.all([packed.degrees, packed.links].map(inflate));
  const counts = new Uint16Array(degrees), ends = new Uint32Array(counts.length + 1);
  for (let i = 0; i < counts.length; ++i) ends[i + 1] = ends[i] + counts[i];
  return {ends, links: new Int32Array(links)};
}

const pointOf = (i) => cloud.data.positions.subarray(3 * (cloud.step * cloud.data.count + i), 3 * (cloud.step * cloud.data.count + i) + 3);
function linksOf(i) {
  const {links, ends, count} = cloud.data, at = cloud.step * count + i;
  return links.subarray(ends[at], ends[at + 1]);
}

// hop[i]: the fewest edges from the chosen token; -1 where it is not reached.
function reach() {
  const hop = new Int8Array(cloud.data.count).fill(-1), found = [[cloud.chosen]], edges = [];
  hop[cloud.chosen] = 0;
  for (let k = 1; k <= Number(byId('cloud-hops').value); ++k) {
    found.push([]);
    for (const from of found[k - 1]) {
      for (const to of linksOf(from)) {
        edges.push([from, to, k]);
        if (hop[to] >= 0) continue;
        hop[to] = k;
        found[k].push(to);
      }
    }
  }
  return {hop, found, edges};
}

const distanceBetween = (a, b) => Math.hypot(...pointOf(a).map((value, axis) => value - pointOf(b)[axis]));

// World: z is up. The eye looks at the middle from an angle, without perspective.
function project(point) {
  const [x, y, z] = point.map((value, axis) => value - cloud.middle[axis]);
  const [c, s] = [Math.cos(cloud.turn), Math.sin(cloud.turn)], [cr, sr] = [Math.cos(cloud.rise), Math.sin(cloud.rise)];
  const right = -s * x + c * y, ahead = c * x + s * y;  // the eye stands at turn 0 on the x axis
  return [right, cr * z - sr * ahead, cr * ahead + sr * z];  // right, up, towards the eye
}

function drawCloud() {
  const canvas = byId('cloud-canvas'), context = canvas.getContext('2d');
  if (!cloud.data) return;
  const ratio = window.devicePixelRatio || 1, {width, height} = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  context.fillStyle = colour('paper');
  context.fillRect(0, 0, canvas.width, canvas.height);
  const {count, low, high} = cloud.data;
  const extent = Math.hypot(...high.map((value, axis) => value - low[axis])) || 1;
  const scale = cloud.zoom * 1.5 * Math.min(canvas.width, canvas.height) / (cloud.close ? 0.16 : extent);
  const screen = new Float32Array(3 * count), order = new Uint32Array(count);
  for (let i = 0; i < count; ++i) {
    const [right, up, near] = project(pointOf(i));
    screen[3 * i] = canvas.width / 2 + scale * right;
    screen[3 * i + 1] = canvas.height / 2 - scale * up;
    screen[3 * i + 2] = near;
    order[i] = i;
  }
  order.sort((a, b) => screen[3 * a + 2] - screen[3 * b + 2]);
  const size = Math.max(2 * ratio, Math.min(9 * ratio, 0.006 * scale));
  const graph = cloud.chosen === null ? null : reach();
  const hopColours = kHopSeries.map((series) => colour(series));
  context.globalAlpha = graph ? 0.45 : 1;
  for (const i of order) {
    if (graph && graph.hop[i] >= 0) continue;
    context.fillStyle = cloud.data.paint[i];
    context.fillRect(screen[3 * i] - size / 2, screen[3 * i + 1] - size / 2, size, size);
  }
  context.globalAlpha = 1;
  if (graph) {
    context.lineWidth = 1.5 * ratio;
    for (const [from, to, k] of graph.edges.toReversed()) {  // the first hops on top
      context.strokeStyle = hopColours[k % kHopSeries.length];
      context.beginPath();
      context.moveTo(screen[3 * from], screen[3 * from + 1]);
      context.lineTo(screen[3 * to], screen[3 * to + 1]);
      context.stroke();
    }
    graph.found.forEach((particles, k) => {
      context.fillStyle = hopColours[k % kHopSeries.length];
      for (const i of particles) {
        context.beginPath();
        context.arc(screen[3 * i], screen[3 * i + 1], (k === 0 ? 1 : 0.7) * Math.max(size, 5 * ratio), 0, 2 * Math.PI);
        context.fill();
      }
    });
  }
  cloud.screen = screen;
  describeCloud(graph);
}

const kindOf = (i, kinds) => kKinds[i < kinds[0] ? 0 : i < kinds[0] + kinds[1] ? 1 : 2];

function describeCloud(graph) {
  const {count} = cloud.data, {all, kinds, neighbours: k, undirected, note} = cloud.row.rollout.cloud;
  const number = (value) => value.toLocaleString('en');
  const shown = all > count ? `${number(count)} of ${number(all)} tokens, those that are finite` : `${number(count)} tokens`;
  let text = `${cloud.row.variant}, step ${cloud.step + 1}: ${shown}: ${number(kinds[0])} particles, ${number(kinds[1])} of the ` +
    `moment before (grey) and ${number(kinds[2])} points of the robot (orange).`;
  if (graph) {
    const reached = graph.found.flat().slice(1);
    const far = reached.reduce((most, i) => Math.max(most, distanceBetween(cloud.chosen, i)), 0);
    text += ` Token ${cloud.chosen}, a ${kindOf(cloud.chosen, kinds)}, reaches ${reached.length} others in up to ` +
      `${graph.found.length - 1} hops to its ${k} nearest${undirected ? ', or to those that it is among the nearest of' : ''} ` +
      `(${graph.found.slice(1).map((found) => found.length).join(' + ')}), ${(1000 * far).toFixed(0)} mm away at most.`;
  } else {
    text += ` ${note ?? 'Click on one to see its graph.'}`;
  }
  byId('cloud-status').textContent = text;
  byId('cloud-canvas').setAttribute('aria-label', text);
}

function lookAtChosen() {
  const {low, high} = cloud.data;
  const centre = low.map((value, axis) => (value + high[axis]) / 2);
  cloud.middle = cloud.close && cloud.chosen !== null ? [...pointOf(cloud.chosen)] : centre;
}

// x, y in pixels of the page from the canvas's corner. Of those under the pointer the one in front is chosen.
function chooseAt(x, y) {
  if (!cloud.data.links) return;
  const ratio = window.devicePixelRatio || 1;
  let best = null;
  for (let i = 0; i < cloud.data.count; ++i) {
    const away = Math.hypot(cloud.screen[3 * i] - x * ratio, cloud.screen[3 * i + 1] - y * ratio);
    if (away > 9 * ratio) continue;
    const score = cloud.screen[3 * i + 2] - away / (1000 * ratio);
    if (best === null || score > best[1]) best = [i, score];
  }
  cloud.chosen = best === null ? null : best[0];
  lookAtChosen();
  drawCloud();
}

async function showCloud() {
  const request = ++cloud.request, row = cloudRows.find(({variant}) => variant === byId('cloud-variant').value);
  const data = await unpackCloud(row.rollout.cloud);
  if (request !== cloud.request) return;  // something else was chosen meanwhile
  Object.assign(cloud, {row, data});
  const hops = row.rollout.cloud.hops ?? 0;
  byId('cloud-hops').parentElement.hidden = hops === 0;
  fillSelect(byId('cloud-step'), Array.from({length: data.steps}, (_, i) => [String(i), String(i + 1)]));
  fillSelect(byId('cloud-hops'), Array.from({length: hops}, (_, i) => [String(i + 1), String(i + 1)]), String(hops));
  cloud.step = Number(byId('cloud-step').value);
  if (cloud.chosen >= data.count || hops === 0) cloud.chosen = null;
  lookAtChosen();
  drawCloud();
}

function startCloud() {
  if (cloudRows.length === 0) {
    nothingToShow('cloud', 'The runs left no tokens to draw.');
    return Promise.resolve();
  }
  const canvas = byId('cloud-canvas');
  fillSelect(byId('cloud-variant'), cloudRows.map(({variant}) => [variant, variant]), 'grf');
  for (const id of ['cloud-variant', 'cloud-step']) byId(id).addEventListener('change', showCloud);
  byId('cloud-hops').addEventListener('change', drawCloud);
  byId('cloud-close').addEventListener('click', () => {
    cloud.close = !cloud.close;
    byId('cloud-close').setAttribute('aria-pressed', String(cloud.close));
    lookAtChosen();
    drawCloud();
  });
  let start = null;
  canvas.addEventListener('pointerdown', (event) => {
    start = {x: event.offsetX, y: event.offsetY, turn: cloud.turn, rise: cloud.rise, moved: false};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (start === null) return;
    const [dx, dy] = [event.offsetX - start.x, event.offsetY - start.y];
    if (Math.hypot(dx, dy) > 3) start.moved = true;
    if (!start.moved) return;
    cloud.turn = start.turn - dx / 150;
    cloud.rise = Math.max(-1.5, Math.min(1.5, start.rise + dy / 150));
    drawCloud();
  });
  canvas.addEventListener('pointerup', (event) => {
    if (start !== null && !start.moved) chooseAt(event.offsetX, event.offsetY);
    start = null;
  });
  canvas.addEventListener('pointercancel', () => { start = null; });
  const zoomBy = (factor) => {
    cloud.zoom = Math.max(0.3, Math.min(20, cloud.zoom * factor));
    drawCloud();
  };
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY / 500));
  }, {passive: false});
  const keys = {ArrowLeft: () => { cloud.turn += 0.1; }, ArrowRight: () => { cloud.turn -= 0.1; },
    ArrowUp: () => { cloud.rise = Math.min(1.5, cloud.rise + 0.1); },
    ArrowDown: () => { cloud.rise = Math.max(-1.5, cloud.rise - 0.1); },
    '+': () => zoomBy(1.2), '-': () => zoomBy(1 / 1.2)};
  canvas.addEventListener('keydown', (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
    drawCloud();
  });
  window.addEventListener('resize', drawCloud);
  charts.set('cloud-canvas', drawCloud);  // drawn again in other colours
  return showCloud();
}
