"""The HTML report of a particle experiment in a real browser: particles_test.py PROGRAM [--screenshots DIR] [--folder EXPERIMENT]

Makes up the files of an experiment, writes their report, and looks at it with Chromium as a reader would.
"""

import array
import base64
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import report_case

STEPS, CAMERAS, SIDE, PARTICLES, PAST, ROBOT = 5, 2, 24, 1200, 300, 40
TOKENS = PARTICLES + PAST + ROBOT
SCORES = ("ssim", "ssim_moving", "psnr", "psnr_moving", "chamfer", "flow_arm", "flow_object")
INKED = """const canvas = document.getElementById(arguments[0]);
const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const seen = new Set();
for (let i = 0; i < pixels.length; i += 4) seen.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
return seen.size;"""


def safetensors(path, tensors, metadata):
    """tensors: name -> (dtype word, shape, bytes)"""
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def frames(shift, steps=STEPS):
    """A square that moves over white, [T, C, H, W, 3]."""
    content = bytearray()
    for step in range(steps):
        for camera in range(CAMERAS):
            for row in range(SIDE):
                for column in range(SIDE):
                    inside = abs(row - 12) < 5 and abs(column - 4 - 3 * step - shift) < 5
                    content += bytes((200, 60 + 80 * camera, 40) if inside else (255, 255, 255))
    return "U8", [steps, CAMERAS, SIDE, SIDE, 3], bytes(content)


def sphere():
    generator = random.Random(1)
    for _ in range(PARTICLES):
        height, angle = generator.uniform(-1, 1), generator.uniform(0, 2 * math.pi)
        width = math.sqrt(1 - height * height)
        yield 0.2 * width * math.cos(angle), 0.2 * width * math.sin(angle), 0.2 * height


def tokens_of(points):
    """Particles on a sphere, those of the moment before just below them, and points of a robot inside."""
    below = [tuple(0.99 * value for value in point) for point in points[:PAST]]
    return points + below + [tuple(0.5 * value for value in point) for point in points[-ROBOT:]]


def of_graph(local, hops=3, ensembles="asymmetric"):
    return {"local": local, "neighbours": "3", "hops": str(hops), "ensembles": ensembles, "past_particles": str(PAST)}


def make_experiment(folder):
    points = list(sphere())
    tokens = tokens_of(points)
    colours = bytes(int(255 * (0.5 + 2.4 * value)) for point in points for value in point)
    score = lambda step, rank: {key: 0.95 - 0.02 * rank - 0.03 * step if "psnr" not in key else 30 - rank - step
                                for key in SCORES}
    variants, runs = [], []
    for rank, name in enumerate(("grf", "mp", "none")):
        steps = []
        for step in range(1, STEPS + 1):
            entry = {"step": step}
            for key, value in score(step, rank).items():
                entry[f"{key}_mean"], entry[f"{key}_se"] = value, 0.004
            entry["flow_grain_mean"], entry["flow_grain_se"] = None, None
            steps.append(entry)
        variants.append({"variant": name, "local": name, "seeds": [0, 1], "parameters": 123456, "step_seconds": 0.012,
                         "memory_bytes": None, "steps": steps})
        for seed in (0, 1):
            run = folder / name / f"seed-{seed}"
            run.mkdir(parents=True)
            runs.append({"variant": name, "seed": seed, "folder": f"{name}/seed-{seed}"})
            (run / "result.json").write_text(json.dumps({"model": "particles", "local": name, "seed": seed, "device": "cpu",
                                                         "particles": PARTICLES, "rollout": {"model": []}}))
        if name == "none":
            continue  # left no rollout
        moved = [(x, y + 0.02 * step, z) for step in range(STEPS) for x, y, z in tokens]
        if name == "mp":
            moved[7] = (math.nan, 0, 0)  # a token that went astray is left out
        safetensors(folder / name / "seed-1" / "rollout.safetensors", {
            "truth": frames(0), "predicted": frames(2 * rank + 1),
            "tokens": ("F32", [STEPS, TOKENS, 3], b"".join(struct.pack("<3f", *p) for p in moved)),
            "colours": ("U8", [PARTICLES, 3], colours),
        }, {"episode": "sweep-000003", "first": "4", **of_graph(name)})
    flat = lambda rank: {"steps": [{"step": step, **score(step, rank)} for step in range(1, STEPS + 1)]}
    (folder / "config.toml").write_text('local = "grf" # </script><b>\n')
    (folder / "results.json").write_text(json.dumps({
        "experiment": "particle-table", "data": "robot </script>", "variants": variants, "runs": runs,
        "copy": flat(8), "oracle": flat(-2)}))
    return tokens


def nearest(points, chosen, count):
    squared = lambda i: sum((a - b) ** 2 for a, b in zip(points[i], points[chosen]))
    return sorted((i for i in range(len(points)) if i != chosen), key=squared)[:count]


class Report(report_case.ReportCase):
    def text(self, selector):
        return self.page.run("return document.querySelector(arguments[0]).innerText;", selector)

    def test_shows_the_table_of_a_step(self):
        rows = lambda: self.page.run("return [...document.querySelectorAll('#results tbody tr')].map((row) => row.innerText);")
        self.assertEqual(len(rows()), 5)
        self.assertIn("0.800 ± 0.004", rows()[0])  # grf at step 5
        self.assertIn("0.640", rows()[3])  # copy, without an error
        self.assertNotIn("grain", self.text("#results"))  # never known
        self.page.choose("#table-step", "1")
        self.assertIn("0.920 ± 0.004", rows()[0])
        self.assertIn("robot </script>", self.text("#summary"))
        self.assertIn("</script><b>", self.page.run("return document.getElementById('config').textContent;"))

    def test_draws_curves_with_errors(self):
        self.need_charts()
        datasets = "return Chart.getChart('curve-chart').data.datasets.map(({label, band, data}) => [label, !!band, data.length, data[0].y]);"
        shown = self.page.run(datasets)
        self.assertEqual([entry[0] for entry in shown if not entry[1]], ["grf", "mp", "none", "copy", "oracle"])
        self.assertEqual(sum(entry[1] for entry in shown), 6)  # two edges for each variant
        self.assertTrue(all(entry[2] == STEPS for entry in shown))
        self.assertGreater(self.page.run(INKED, "curve-chart"), 10)
        self.page.choose("#curve-metric", "chamfer")
        self.assertAlmostEqual(self.page.run(datasets)[2][3], 920, places=3)  # millimetres

    def test_rollouts_play(self):
        place = "return document.querySelector('#films .film').style.backgroundPositionX;"
        self.assertEqual(self.page.run("return document.querySelectorAll('#films .film').length;"), 6)
        self.assertEqual(self.page.run(place), "0%")
        self.page.run("const s = document.getElementById('rollout-step'); s.value = 3; s.dispatchEvent(new Event('input'));")
        self.assertEqual(self.page.run(place), "50%")
        self.assertIn("3 of 5, 1.5 s", self.text("#rollout-count"))
        self.page.click("#play")
        self.page.wait_for("document.querySelector('#films .film').style.backgroundPositionX === '100%'")
        self.page.click("#play")
        # A frame of the strip is what was stored.
        picture = self.page.run("""const film = document.querySelectorAll('#films .film')[1], image = new Image();
image.src = getComputedStyle(film).backgroundImage.slice(5, -2);
return image.decode().then(() => {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext('2d').drawImage(image, 0, 0);
  const {data} = canvas.getContext('2d').getImageData(0, 0, image.width, image.height);
  const pixel = (x, y) => [...data.slice(4 * (y * image.width + x), 4 * (y * image.width + x) + 3)];
  return [image.width, image.height, pixel(24 * 2 + 11, 12), pixel(24 * 2 + 1, 12)];
});""")
        self.assertEqual(picture, [SIDE * STEPS, SIDE, [200, 60, 40], [255, 255, 255]])
        self.page.choose("#rollout-camera", "1")
        self.assertIn("camera 2", self.page.run("return document.querySelector('#films .film').getAttribute('aria-label');"))

    def test_the_cloud_turns_and_shows_the_graph_around_a_particle(self):
        self.assertGreater(self.page.run(INKED, "cloud-canvas"), 300)
        self.assertIn("1,540 tokens: 1,200 particles, 300 of the moment before (grey) and 40 points of the robot",
                      self.text("#cloud-status"))
        picture = "return document.getElementById('cloud-canvas').toDataURL();"
        before = self.page.run(picture)
        self.page.press("#cloud-canvas", "\ue012")  # left
        turned = self.page.run(picture)
        self.assertNotEqual(turned, before)
        self.page.click("#cloud-canvas")  # in its middle: one on the near side
        self.page.wait_for("cloud.chosen !== null")
        chosen, reached = self.page.run("return [cloud.chosen, reach().found];")
        self.assertEqual(reached[0], [chosen])
        # The graph is that of all tokens, not of the particles alone.
        self.assertEqual(sorted(reached[1]), sorted(nearest(self.tokens, chosen, 3)))
        self.assertGreater(sum(self.tokens[chosen]), 0)
        self.assertLessEqual(len(reached[2]), 9)
        self.assertRegex(self.text("#cloud-status"), rf"Token {chosen}, a .+, reaches \d+ others in up to 3 hops to its 3 nearest")
        marked = self.page.run(picture)
        self.page.choose("#cloud-hops", "1")
        self.assertIn("reaches 3 others in up to 1 hops", self.text("#cloud-status"))
        self.page.click("#cloud-close")
        self.assertNotEqual(self.page.run(picture), marked)
        self.page.choose("#cloud-variant", "mp")
        self.page.wait_for("document.getElementById('cloud-status').innerText.startsWith('mp')")
        self.assertIn("1,539 of 1,540 tokens", self.text("#cloud-status"))
        self.assertIn("Message passing has anchors in place of a graph", self.text("#cloud-status"))
        self.assertFalse(self.page.run("return document.getElementById('cloud-hops').checkVisibility();"))
        self.page.click("#cloud-canvas")
        self.assertIsNone(self.page.run("return cloud.chosen;"))
        self.page.choose("#cloud-step", "4")
        self.page.wait_for("document.getElementById('cloud-status').innerText.includes('step 5')")


class OneRun(unittest.TestCase):
    """The report of a single run, and what is said of files that cannot be understood."""

    def report(self, folder):
        return subprocess.run([self.program, "report", folder, "--quiet"], capture_output=True, text=True)

    def test_a_run_has_a_report(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            step = {"step": 1, "ssim": 0.5, "psnr": None}
            result = {"local": "mp", "seed": 7, "data": "robot",
                      "rollout": {"model": [step], "copy": [step], "oracle": [step], "step_seconds": 0.1}}
            (folder / "result.json").write_text(json.dumps(result))
            self.assertEqual(self.report(folder).returncode, 0)
            self.assertIn('"variant":"mp"', (folder / "report.html").read_text())
            result["rollout"]["model"] = []
            (folder / "result.json").write_text(json.dumps(result))
            done = self.report(folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("report: mp has no steps in its results", done.stderr)

    def test_bad_rollouts(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "bad"
            make_experiment(folder)
            for tensors, message in (
                ({"truth": frames(0)}, "has no tensor 'predicted'"),
                ({"truth": frames(0), "predicted": ("U8", [1, 3], b"abc")}, "expected 'predicted' with 5 dimensions"),
                ({"truth": frames(0), "predicted": frames(0), "tokens": ("F32", [1, 301, 3], bytes(12 * 301)),
                  "colours": ("U8", [2, 3], bytes(6))}, "expected at least as many 'tokens' as 'colours' and"),
            ):
                safetensors(folder / "grf" / "seed-0" / "rollout.safetensors", tensors, of_graph("grf"))
                done = self.report(folder)
                self.assertEqual(done.returncode, 2)
                self.assertIn(message, done.stderr)
            safetensors(folder / "grf" / "seed-0" / "rollout.safetensors",
                        {"truth": frames(0), "predicted": frames(0), "tokens": ("F32", [1, 301, 3], bytes(12 * 301)),
                         "colours": ("U8", [1, 3], bytes(3))}, of_graph("grf", hops="many"))
            self.assertIn("expected a number from 0 for 'hops' in the metadata, got 'many'", self.report(folder).stderr)

    def test_graphs_are_those_of_the_local_layers(self):
        points = list(sphere())
        tokens = tokens_of(points)
        content = struct.pack(f"<{3 * TOKENS}f", *(value for token in tokens for value in token))
        step = {"step": 1, "ssim": 0.5}
        result = {"local": "grf", "seed": 0, "data": "robot", "rollout": {"model": [step], "copy": [step], "oracle": [step]}}
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "result.json").write_text(json.dumps(result))

            def cloud(steps=1, **graph):
                safetensors(folder / "rollout.safetensors", {
                    "truth": frames(0, steps), "predicted": frames(1, steps),
                    "tokens": ("F32", [steps, TOKENS, 3], steps * content),
                    "colours": ("U8", [PARTICLES, 3], bytes(3 * PARTICLES))}, {"episode": "x", **of_graph(**graph)})
                done = self.report(folder)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                page = (folder / "report.html").read_text()
                data = page.split('<script type="application/json" id="report-data">')[1].split("</script")[0]
                return json.loads(data)["variants"][0]["rollout"]

            unpack = lambda kind, text: array.array(kind, zlib.decompress(base64.b64decode(text)))
            for local, hops in (("grf", 2), ("softmax", 1)):
                shown = cloud(local=local, hops=2)["cloud"]
                self.assertEqual((shown["hops"], shown["undirected"], shown["kinds"]), (hops, False, [PARTICLES, PAST, ROBOT]))
                self.assertEqual(set(unpack("H", shown["degrees"])), {3})
                links = unpack("i", shown["links"])
                for token in (0, PARTICLES + 5, TOKENS - 1):
                    self.assertEqual(sorted(links[3 * token:3 * token + 3]), sorted(nearest(tokens, token, 3)))
            shown = cloud(local="grf", ensembles="shared")["cloud"]
            self.assertTrue(shown["undirected"])
            degrees, links, edges, at = unpack("H", shown["degrees"]), unpack("i", shown["links"]), set(), 0
            for token, degree in enumerate(degrees):
                edges |= {(token, other) for other in links[at:at + degree]}
                at += degree
            self.assertEqual(edges, {(b, a) for a, b in edges})
            for local, note in (("mp", "anchors"), ("none", "All layers are global")):
                shown = cloud(local=local)["cloud"]
                self.assertNotIn("links", shown)
                self.assertIn(note, shown["note"])
            rollout = cloud(steps=70, local="grf")  # the first 64 steps are shown
            self.assertEqual((rollout["steps"], rollout["cloud"]["steps"]), (64, 64))


def make_report(program, folder):
    Report.tokens = make_experiment(folder)
    subprocess.run([program, "report", folder, "--quiet"], check=True)


if __name__ == "__main__":
    sys.exit(report_case.main(__doc__, Report, make_report, OneRun))
