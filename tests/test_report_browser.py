"""The page as a browser shows it: drawn, whole, and no wider than a phone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
import numpy as np
from matplotlib.image import imread

from analysis.report import build
from analysis.report_html import write

EXAMPLE = Path(__file__).resolve().parent / "fixtures" / "results" / "raw" / "example"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
# Put at the end of a copy of the page: what the layout came to, for --dump-dom to show.
PROBE = """<script>
addEventListener("load", () => {
  const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.right, r.width, r.height]; };
  const all = [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, svg, details:not([open])"));
  document.body.dataset.probe = JSON.stringify({
    wide: innerWidth, scroll: document.documentElement.scrollWidth,
    over: all.filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.className),
    figures: [...document.querySelectorAll("figure")].map((f) => [f.id, ...box(f.querySelector("svg"))]),
    words: [...document.querySelectorAll("figure svg text")].filter((t) => {
      const a = t.getBoundingClientRect(), b = t.closest("figure").getBoundingClientRect();
      return a.left < b.left || a.right > b.right || a.height < 4;
    }).map((t) => t.closest("figure").id + ": " + t.textContent),
    rows: [...document.querySelectorAll("table.methods tbody tr")].filter((r) => r.offsetHeight > 10).length,
    broken: [...document.images].filter((i) => !i.naturalWidth).length,
  });
});
</script></body>"""


@pytest.fixture(scope="module")
def browser():
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail(f"the report has to be looked at in a browser: install one of {', '.join(BROWSERS)}")
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(path, build(EXAMPLE))
    return path


def run(browser, folder, *arguments):
    """Standard output of one browser call with a profile of its own."""
    command = [browser, *QUIET, f"--user-data-dir={folder / 'profile'}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.timeout(240)
@pytest.mark.parametrize("width", [400, 1280])
def test_everything_is_there_and_nothing_sticks_out(browser, page, tmp_path, width):
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<meta http-equiv.*?>", "", text).replace("</body>", PROBE)
    # A frame has the width it is told, whatever smallest window the browser allows.
    framed = text.replace("&", "&amp;").replace('"', "&quot;")
    outer = tmp_path / "frame.html"
    outer.write_text(
        f'<body style="margin:0"><iframe style="border:0" width="{width}" height="900" srcdoc="{framed}"></iframe>'
        '<script>addEventListener("load", () => setTimeout(() => { document.body.dataset.probe = '
        'document.querySelector("iframe").contentDocument.body.dataset.probe; }, 100));</script></body>',
        encoding="utf-8",
    )
    dom = run(browser, tmp_path, "--dump-dom", "--virtual-time-budget=5000", "--window-size=1300,1000", outer.as_uri())
    (told,) = re.findall(r'<body [^>]*data-probe="([^"]+)"', dom)
    found = json.loads(told.replace("&quot;", '"').replace("&amp;", "&"))
    assert (found["wide"], found["broken"], found["over"]) == (width, 0, [])
    assert found["scroll"] <= width
    assert found["rows"] == 14
    assert len(found["figures"]) == 13
    assert all(left >= 0 and right <= width and height > 60 for _, left, right, _, height in found["figures"])
    assert found["words"] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("size", ["1280,2400", "500,2400"])
def test_it_is_drawn(browser, page, tmp_path, size):
    shot = tmp_path / "shot.png"
    run(browser, tmp_path, f"--screenshot={shot}", f"--window-size={size}", page.as_uri())
    pixels = imread(shot)[..., :3]  # [height, width, 3]
    assert pixels.shape[0] > 2000
    thirds = np.array_split(pixels.mean(axis=2), 3)
    assert all(part.std() > 0.02 for part in thirds)
    assert len(np.unique((pixels * 255).astype(np.uint8).reshape(-1, 3), axis=0)) > 100


@pytest.mark.timeout(240)
def test_the_dom_of_the_page_itself(browser, page, tmp_path):
    dom = run(browser, tmp_path, "--dump-dom", page.as_uri())
    assert dom.count("<svg") == dom.count("<figure") == 13
    assert '<table class="methods">' in dom
    assert "<img" not in dom
