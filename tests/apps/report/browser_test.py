"""The HTML report in a real browser: browser_test.py PROGRAM [--screenshots DIR] [--folder EXPERIMENT]

Trains a few tiny models, writes their report, and looks at it with Chromium as a reader would.
"""

import json
import re
import struct
import subprocess
import sys

import report_case

TINY = ["--data", "strokes:16,train=64,val=48", "--layers", "2", "--embedding", "16", "--mlp", "16", "--batch", "16",
        "--epochs", "2", "--warmup-epochs", "1", "--threads", "1"]
DOWN = "\ue015"

# Per cent that the maps show, patch by patch, from the cells' texts.
SHARES = """return [...document.querySelectorAll('#maps .heat')].map(
  (grid) => [...grid.children].map((cell) => parseFloat(cell.title.match(/: ([0-9.]+) %/)[1])));"""
COLOURS = """return [...document.querySelectorAll('#maps .heat')].map(
  (grid) => [...grid.children].map((cell) => getComputedStyle(cell).backgroundColor).join(' '));"""
CARDS = """return Promise.all([...document.querySelectorAll('#example-list > li')].map((card) => {
  const image = card.querySelector('img');
  return image.decode().then(() => [image.naturalWidth, card.innerText]);
}));"""
CHARTS = """return [...document.querySelectorAll('canvas')].map((canvas) => {
  const chart = Chart.getChart(canvas), {width, height} = canvas.getBoundingClientRect();
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return {id: canvas.id, width, height, label: canvas.getAttribute('aria-label'),
    points: chart.data.datasets.map((dataset) => dataset.data.filter(({y}) => Number.isFinite(y)).length),
    inked: pixels.some((value) => value > 0)};
});"""


def read_mask(folder, name):
    """A tensor [heads, N, N] of half floats in a safetensors file, as nested lists."""
    content = (folder / "masks.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    entry = json.loads(content[8:8 + length])[name]
    begin, end = entry["data_offsets"]
    values = [value for (value,) in struct.iter_unpack("<e", content[8 + length + begin:8 + length + end])]
    heads, nodes, _ = entry["shape"]
    return [[values[(h * nodes + i) * nodes:(h * nodes + i + 1) * nodes] for i in range(nodes)] for h in range(heads)]


class Report(report_case.ReportCase):
    def assert_row_shown(self, panel, name, layer, head, patch):
        row = read_mask(self.folder / name / "seed-0", f"layer.{layer}.{panel}")[head][patch]
        shown = self.page.run(SHARES)[0 if panel == "exact" else 1]
        for value, share in zip(row, shown, strict=True):
            self.assertAlmostEqual(100 * value / sum(row), share, delta=0.01 + 0.01 * max(shown))

    def test_draws_every_chart(self):
        self.need_charts()
        charts = self.page.run(CHARTS)
        self.assertEqual({chart["id"] for chart in charts},
                         {"curve-chart", "modulation-0", "modulation-1", "distance-chart"})
        for chart in charts:
            self.assertGreater(chart["width"], 100)
            self.assertGreater(chart["height"], 100)
            self.assertTrue(chart["inked"], chart["id"])
            self.assertTrue(chart["label"])
            self.assertTrue(chart["points"] and all(count >= 1 for count in chart["points"]), chart)

    def test_shows_the_table(self):
        rows = self.page.run("return [...document.querySelectorAll('#results tbody tr')].map((row) => row.innerText);")
        results = json.loads((self.folder / "results.json").read_text())["variants"]
        self.assertEqual(len(rows), len(results))
        for text, row in zip(rows, results):
            self.assertIn(row["variant"], text)
            self.assertIn(f"{100 * row['accuracy_mean']:.2f} ± {100 * row['accuracy_se']:.2f} %", text)

    def test_a_click_on_a_patch_changes_the_maps(self):
        self.page.click("#maps .picker [data-patch='0']")
        self.page.wait_for("document.querySelector('#maps .picker .chosen').dataset.patch === '0'")
        before, colours = self.page.run(SHARES), self.page.run(COLOURS)
        self.assertEqual(len(before), 3)  # exact, estimated, Toeplitz
        self.page.click("#maps .picker [data-patch='5']")
        self.page.wait_for("document.querySelector('#maps .heat .chosen').dataset.patch === '5'")
        after = self.page.run(SHARES)
        for old, new in zip(before[:2], after[:2]):
            self.assertNotEqual(old, new)
        self.assertNotEqual(colours[0], self.page.run(COLOURS)[0])
        self.assertEqual(after[0].index(max(after[0])), 5)  # an exact mask is largest at home
        self.assert_row_shown("exact", "grf", 0, 0, 5)
        self.assert_row_shown("used", "grf", 0, 0, 5)
        # The maps themselves take clicks, and the arrow keys walk over the grid.
        self.page.click("#maps .heat [data-patch='2']")
        self.page.wait_for("document.querySelector('#maps .picker .chosen').dataset.patch === '2'")
        self.page.press("#maps .picker .chosen", DOWN)
        columns = json.loads((self.folder / "grf/seed-0/result.json").read_text())["grid"][1]
        self.page.wait_for("Number(document.querySelector('#maps .picker .chosen').dataset.patch) === arguments[0]",
                           2 + columns)
        self.assertIn("Row 2, column 3", self.page.run("return document.getElementById('mask-status').innerText;"))

    def test_layers_and_heads_can_be_chosen(self):
        self.page.choose("#mask-layer", "1")
        self.page.choose("#mask-head", "1")
        self.page.click("#maps .picker [data-patch='3']")
        self.page.wait_for("document.querySelector('#maps .heat .chosen').dataset.patch === '3'")
        self.assert_row_shown("used", "grf", 1, 1, 3)
        self.page.choose("#mask-variant", "toeplitz")
        self.page.wait_for("document.querySelectorAll('#maps .heat').length === 1")

    def test_shows_examples_with_their_images(self):
        for variant in ("grf", "linear"):
            self.page.choose("#example-variant", variant)
            cards = self.page.run(CARDS)
            self.assertGreater(len(cards), 0)
            for width, text in cards:
                self.assertEqual(width, 16)
                self.assertRegex(text, r"[✓✗]")
        self.page.choose("#example-filter", "wrong")
        self.assertEqual(self.page.run("return document.querySelectorAll('#example-list .right').length;"), 0)

    def test_curves_change_with_the_metric(self):
        self.need_charts()
        self.page.choose("#curve-metric", "train_loss")
        label = self.page.run("return document.getElementById('curve-chart').getAttribute('aria-label');")
        self.assertTrue(label.startswith("Loss while training"))
        metrics = [json.loads(line) for line in (self.folder / "grf/seed-0/metrics.jsonl").read_text().splitlines()]
        epochs = [line["epoch"] for line in metrics if line["kind"] == "epoch"]
        shown = self.page.run("""return Chart.getChart('curve-chart').data.datasets
          .find((dataset) => dataset.label === 'grf' && !dataset.band).data.map(({x}) => x);""")
        self.assertEqual(shown, epochs)

    def test_without_the_chart_library_there_are_tables(self):
        self.need_charts()
        text = (self.folder / "report.html").read_text()
        bare = re.sub(r"<script>/\*!\s+\* Chart\.js.*?</script>", "<script></script>", text, flags=re.DOTALL)
        self.assertLess(len(bare), len(text))
        (self.folder / "bare.html").write_text(bare)
        self.open("bare.html")
        self.assertEqual(self.page.run("return document.getElementById('no-charts').hidden;"), False)
        self.assertGreater(self.page.run("return document.querySelectorAll('details.data[open] table').length;"), 2)


def make_report(program, folder):
    subprocess.run([program, "experiment", "image-table", "--variants", "linear,toeplitz,grf", "--seeds", "0-1",
                    "--out", folder, *TINY, "--quiet"], check=True)


if __name__ == "__main__":
    sys.exit(report_case.main(__doc__, Report, make_report))
