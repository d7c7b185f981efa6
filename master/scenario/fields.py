"""Common parts of the models of a scenario: names, the YAML loader, error messages."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pktswarm.master.cluster.inventory import UniqueKeys

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class Yaml(UniqueKeys):
    """10e6 is a number here as in YAML 1.2; in YAML 1.1, which PyYAML and Ansible read, only 10.0e+6 is."""


Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False, populate_by_name=True)


def keys_of(model: type[BaseModel]) -> str:
    return ", ".join(field.alias or name for name, field in model.model_fields.items())
