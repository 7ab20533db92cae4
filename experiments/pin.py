"""Write the exact version of data sets into their files: ``python -m experiments.pin [NAME ...]``.

Reads each set of ``conf/dataset`` (default: all that have ``revision: null``) and replaces its
``revision`` by what was read: the commit of a hub set, the version of a documentation package, the sha256
of a local file. Nothing else in the file changes. A set named on the command line is pinned anew, to what
a run without a pin would read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ssd.bench.datasets import DatasetSpec, Loaded, read, read_spec

FOLDER = Path(__file__).resolve().parent.parent / "conf" / "dataset"
LINE = re.compile(r"""^revision:[ \t]*(?:"[^"\n]*"|'[^'\n]*'|[^\s#]+)?([ \t]*(?:#.*)?)$""", re.MULTILINE)


def main(names: Sequence[str], folder: Path = FOLDER, reader: Callable[[DatasetSpec], Loaded] = read) -> int:
    """One line per set; exit status 1 if one could not be read, after all others were."""
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    for name in names:
        if name not in known:
            raise ValueError(f"{name}: not one of {', '.join(known)}")
    failed = 0
    for name in names or known:
        try:
            print(f"{name}: {pin(known[name], anew=bool(names), reader=reader)}")
        except ValueError as error:
            failed += 1
            print(f"{name}: error: {error}", file=sys.stderr)
    return 1 if failed else 0


def pin(path: Path, anew: bool, reader: Callable[[DatasetSpec], Loaded] = read) -> str:
    """The file names the version that was read now; what to tell the user.

    Args:
        anew: pin again even if the file names a version already.

    Raises:
        ValueError: if the set cannot be read, or the file has no line ``revision:``.
    """
    spec = read_spec(path)
    if spec.revision is not None and not anew:
        return f"pinned to {spec.revision} already"
    # Few prompts are enough to see that the version can be read.
    found = reader(replace(spec, revision=None, limit=1, offset=0)).revision
    if found is None:
        return "has no version of its own"
    if found == spec.revision:
        return f"still {found}"
    text = path.read_text(encoding="utf-8")
    if len(LINE.findall(text)) != 1:
        raise ValueError(f"{path}: expected one line 'revision: ...' at the start of a line")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # Quoted, because some versions would be read back as numbers.
    temporary.write_text(LINE.sub(lambda match: f'revision: "{found}"{match[1]}', text), encoding="utf-8")
    temporary.replace(path)
    return f"pinned to {found}" if spec.revision is None else f"{spec.revision} replaced by {found}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")
