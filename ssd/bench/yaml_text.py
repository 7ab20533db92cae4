"""YAML as the configurations are read by Hydra: a number without a point, such as 1e-6, is a number."""

from __future__ import annotations

import re
from typing import Any

import yaml

# YAML 1.1 asks for a point and a signed exponent, and takes 1e-6 for text.
FLOAT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, and ``FLOAT``."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{FLOAT.pattern})$"), list("-+.0123456789"))


def read_yaml(text: str) -> Any:
    """The plain data in ``text``.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    return yaml.load(text, Loader=_Loader)
