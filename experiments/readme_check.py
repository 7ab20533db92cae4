"""Check the README against the project: ``python -m experiments.readme_check``.

Runs every block fenced as ``bash run`` or ``python run`` in a fresh clone of the last commit, and
checks that each number between ``<!-- measured: FILE -->`` and ``<!-- /measured -->`` stands in that
committed summary.json, rounded as the README rounds it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(bash|python) run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"<!-- measured: (\S+) -->(.*?)<!-- /measured -->", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:\.\d+)?%?(?![\w])")  # noqa: RUF001 - a typographic minus is a sign too


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """(language, code) of every block to run, in order."""
    for match in BLOCK.finditer(text):
        yield match[1], match[2]


def numbers(text: str) -> list[str]:
    """Numbers as written, links and code spans left out."""
    return NUMBER.findall(re.sub(r"`[^`]*`|\(http[^)]*\)", "", text))


def stands_in(number: str, values: list[float]) -> bool:
    """Whether some value, as a plain number or a percentage, rounds to ``number`` as written."""
    written = number.rstrip("%").replace("−", "-")  # noqa: RUF001
    decimals = len(written.partition(".")[2])
    scale = 100 if number.endswith("%") else 1
    return any(f"{value * scale:.{decimals}f}" == written for value in values)


def strangers(text: str, root: Path) -> list[str]:
    """One line per number of a measured block that its summary does not hold."""
    wrong = []
    for file, body in MEASURED.findall(text):
        summary = json.loads((root / file).read_text(encoding="utf-8"))
        values = [
            row[k]
            for row in summary["rows"]
            for k in ("value", "low", "high", "n", "bound", "goal")
            if row.get(k) is not None
        ]
        wrong += [f"{n}: not in {file}" for n in numbers(body) if not stands_in(n, values)]
    return wrong


def run_blocks(text: str, clone: Path) -> int:
    """Run every block in ``clone``; the number that failed."""
    failed = 0
    for language, code in blocks(text):
        print(f"--- {language}\n{code.rstrip()}", flush=True)
        command = (
            ["bash", "-euo", "pipefail", "-c", code]
            if language == "bash"
            else [str(clone / ".venv/bin/python"), "-c", code]
        )
        if subprocess.run(command, cwd=clone, check=False).returncode:
            failed += 1
            print("--- FAILED", flush=True)
    return failed


def main() -> int:
    """Exit status 1 if a block fails or a number is not where it should be."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        text = (clone / "README.md").read_text(encoding="utf-8")
        wrong = strangers(text, clone)
        for line in wrong:
            print(line)
        failed = run_blocks(text, clone)
    print(f"README: {len(wrong)} numbers without a source, {failed} blocks failed")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
