"""The gate says what it lacks instead of going on without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GATE = Path(__file__).parent.parent / ".ci" / "run"


@pytest.mark.parametrize("failing", ["update", "install", ""])
def test_a_browser_that_cannot_be_installed_ends_the_gate(tmp_path, failing):
    for name in ("bash", "dirname"):
        found = shutil.which(name)
        assert found
        (tmp_path / name).symlink_to(found)
    for name, text in (("apt-get", f'[ "$1" != "{failing}" ]'), ("make", 'echo "made $1, CI=$CI"')):
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    variables = {key: value for key, value in os.environ.items() if key != "CI"} | {"PATH": str(tmp_path)}
    done = subprocess.run([GATE], env=variables, capture_output=True, text=True, check=False)
    if failing:
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "error: no chromium here, and apt-get could not install it\n"
    else:
        assert (done.returncode, done.stdout) == (0, "made check, CI=true\nmade test, CI=true\n")
