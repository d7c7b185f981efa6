"""Common parts of the models of a scenario: names, the YAML loader, error messages."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pktswarm.master.cluster.inventory import UniqueKeys
from pktswarm.traffic import units

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]


class Yaml(UniqueKeys):
    """10e6 is a number here as in YAML 1.2; in YAML 1.1, which PyYAML and Ansible read, only 10.0e+6 is."""


Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


UNITS = {
    "rate": units.PACKET_RATE,
    "echo": units.PERCENT,
    "ring_mib": units.MEBIBYTES,
    "seconds": units.SECONDS,
    **dict.fromkeys(
        ("sent", "received", "loss", "altered", "reordered", "duplicated", "misdelivered", "sessions_accepted"),
        units.PACKETS,
    ),
    **dict.fromkeys(
        ("users", "connections", "blocks", "count", "sessions", "instances", "servers", "repeat", "capture_every"),
        units.COUNT,
    ),
}
"""Keys whose last word is not their unit."""


def unit_of(key: str) -> units.Unit:
    """The unit of a key; PLAIN: it has none."""
    return UNITS.get(key) or units.unit_of(key)


class Strict(BaseModel):
    """A section. A number of it may be a text with a unit; a text that is none is left to the check of the type."""

    model_config = ConfigDict(extra="forbid", strict=False, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _numbers_with_units(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        numeric = {field.alias or name for name, field in cls.model_fields.items() if has_number(field.annotation)}
        return {key: number_of(key, value) if key in numeric else value for key, value in given.items()}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        for key, value in handler.resolve_ref_schema(schema).get("properties", {}).items():
            _allow_units(value, unit_of(key))
        return schema


def number_of(key: str, value: Any) -> Any:
    """The number that a text with the unit of `key` is; any other value as it is. Of a mapping its values: with the
    unit of `key`, or if it has none, each with that of its own key."""
    unit = unit_of(key)
    if isinstance(value, Mapping):
        return {each: number_of(str(each) if unit is units.PLAIN else key, inner) for each, inner in value.items()}
    if unit is units.PLAIN or not isinstance(value, str):
        return value
    try:
        number = units.parse(value, unit)
    except units.UnitError:
        return value
    return int(number) if number.is_integer() else number


def has_number(annotation: Any) -> bool:
    """Whether a value of the type may be a number."""
    if annotation in (int, float):
        return True
    origin = get_origin(annotation)
    parts = get_args(annotation) if origin in (Union, types.UnionType, Annotated) else ()
    if origin is dict:
        return has_number(get_args(annotation)[1])
    return any(has_number(part) for part in parts)


def _allow_units(schema: JsonSchemaValue, unit: units.Unit) -> None:
    """Add the texts with units to the JSON Schema of a number."""
    branches = schema.get("anyOf", [schema])
    for each in branches:
        inner = each.get("additionalProperties")
        named = [unit_of(name) for name in each.get("propertyNames", {}).get("enum", [])]
        for kind in [one for one in (unit, *named) if one is not units.PLAIN and isinstance(inner, dict)]:
            _allow_units(inner, kind)
    if unit is units.PLAIN or not any(each.get("type") in ("integer", "number") for each in branches):
        return
    text = {"type": "string", "pattern": unit.pattern}
    if "anyOf" in schema:
        schema["anyOf"] = [*branches, text]
        return
    limits = {key: schema.pop(key) for key in list(schema) if key not in ("default", "description", "title")}
    schema["anyOf"] = [limits, text]


def keys_of(model: type[BaseModel]) -> str:
    return ", ".join(field.alias or name for name, field in model.model_fields.items())
