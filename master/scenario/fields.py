"""Common parts of the models of a scenario: names, the YAML loader, error messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pktswarm.master.cluster.inventory import UniqueKeys
from pktswarm.traffic.errors import BadInput

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
Location = tuple[int | str, ...]


class Yaml(UniqueKeys):
    """10e6 is a number here as in YAML 1.2; in YAML 1.1, which PyYAML and Ansible read, only 10.0e+6 is."""


Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False, populate_by_name=True)


def bad_input(path: Path, error: ValidationError, known_keys: Callable[[Location], str], under: str = "") -> BadInput:
    """First error of pydantic, with the keys of the file. `under`: key of the section."""
    first = error.errors()[0]
    # pydantic adds the name of the union branch it tried, which is not a key of the file.
    parts = ([under] if under else []) + [str(part) for part in first["loc"] if not _is_branch(part)]
    key = ".".join(parts)
    message = first["msg"].removeprefix("Value error, ")
    value = first["input"] if isinstance(first["input"], (str, int, float, bool)) else None
    if first["type"] == "extra_forbidden":
        return BadInput(path, "unknown key", key=key, allowed=known_keys(first["loc"]))
    return BadInput(path, message[:1].lower() + message[1:], key=key, value=value)


def keys_of(model: type[BaseModel]) -> str:
    return ", ".join(field.alias or name for name, field in model.model_fields.items())


def _is_branch(part: int | str) -> bool:
    return isinstance(part, str) and ("[" in part or part in ("int", "str", "literal", "dict", "constrained-str"))
