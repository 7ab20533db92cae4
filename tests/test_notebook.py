"""The notebook is thin, carries no outputs, and runs on the example records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parent.parent
PATH = ROOT / "notebooks" / "report.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(PATH, as_version=4)


def test_it_is_thin(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(notebook.cells) < 15
    assert not any("def " in cell.source or "lambda" in cell.source for cell in code)
    assert all(cell.source.count("figures.") <= 1 for cell in code[1:])
    assert not any(cell.outputs or cell.execution_count for cell in code)
    nbformat.validate(notebook)


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("default")  # of the kernel's client, which is not ours
def test_it_runs(notebook, monkeypatch):
    monkeypatch.delenv("SSD_RUNS", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(PATH.parent)}}
    )
    client.execute()
    outputs = {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    assert "2 runs cannot be reported" in outputs["load"][0]["text"]
    assert "L0→L1→L2" in outputs["load"][1]["data"]["text/html"]
    drawn = [name for name, found in outputs.items() if any("image/png" in o.get("data", {}) for o in found)]
    assert drawn == ["overview", "speedup", "time", "position", "output-position", "output-length", "fate"]
    assert not any(o["output_type"] in ("error", "stream") for n in drawn for o in outputs[n])
