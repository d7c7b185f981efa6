"""PyYAML's safe loader: by libyaml, which takes a fifth of the time, where the package of PyYAML has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING or not yaml.__with_libyaml__:
    from yaml import SafeLoader as Loader
else:
    from yaml import CSafeLoader as Loader

__all__ = ["Loader", "safe_load"]


def safe_load(text: str) -> Any:
    """The document in `text`. Raises yaml.YAMLError."""
    return yaml.load(text, Loader)
