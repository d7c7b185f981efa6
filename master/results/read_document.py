"""Reads run.json: checks its format and fields, and brings an older format to this version's form."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from pktswarm.master.cluster.inventory import Host
from pktswarm.master.results.document import FORMAT_VERSION, HostEntry, LegEntry, RunDocument
from pktswarm.master.scenario.problems import expected
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import leg_from_json

FORMAT_VERSIONS = (1, FORMAT_VERSION)
RUN = "run.json"
RENAMED_LEG_KEYS = {"counted_with": "merged_into", "also_at": "handover_targets"}
"""Key in format 1 → key since format 2."""
SCHEMA = "as in the schema that pktswarm schema run prints"
LONGEST_VALUE = 60
"""Characters of a wrong value in a message."""


def read_run(folder: Path) -> RunDocument:
    """Raises BadInput where there is no run, or one that this version cannot read."""
    path = folder / RUN
    try:
        return decode(path, json.loads(path.read_text()))
    except FileNotFoundError:
        raise BadInput(folder, "no results of a run here", allowed="a folder with run.json") from None
    except ValueError as error:
        raise BadInput(path, f"cannot be read: {error}") from None


def decode(path: Path, data: JsonValue) -> RunDocument:
    """The checked document. Raises BadInput with the first unknown, missing or wrong field."""
    check_format(path, data)
    assert isinstance(data, dict)
    document = _renamed(data)
    try:
        _adapter().validate_python(document)
    except ValidationError as error:
        raise _bad_field(path, error) from None
    # As it was read: the validated copy has a float wherever a float is allowed, also for a whole number.
    return cast(RunDocument, document)


def check_format(path: Path, data: JsonValue) -> None:
    """Raises BadInput where `data` is no run.json of a format that this version reads."""
    version = data.get("format_version") if isinstance(data, dict) else None
    if isinstance(data, dict) and version in FORMAT_VERSIONS:
        return
    problem = "no results of a run that this version can read"
    if isinstance(data, dict) and isinstance(version, int):
        age = "a newer" if version > FORMAT_VERSION else "an older"
        wrote = f"the pktswarm that wrote it{writer(data.get('ranks'))}"
        problem = f"of {age} format: read it with {wrote}, or run its scenario again"
    raise BadInput(path, problem, key="format_version", value=version, allowed=", ".join(map(str, FORMAT_VERSIONS)))


def writer(ranks: object) -> str:
    """The version of pktswarm that wrote a run, in parentheses; empty where its nodes did not report one."""
    reports = list(ranks.values()) if isinstance(ranks, dict) else []
    version = reports[0].get("pktswarm") if reports and isinstance(reports[0], dict) else None
    return f" ({version})" if version else ""


def leg_of(entry: LegEntry) -> Leg:
    return leg_from_json(dict(entry))


def leg_entry(leg: Leg) -> LegEntry:
    return cast(LegEntry, leg.to_json())


def host_entry(host: Host) -> HostEntry:
    return cast(HostEntry, asdict(host))


def schema() -> str:
    """The JSON Schema of run.json in format FORMAT_VERSION."""
    body = _adapter().json_schema(schema_generator=_WithoutFieldTitles)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "pktswarm run.json"}
    return json.dumps({**body, **head}, indent=2) + "\n"


class _WithoutFieldTitles(GenerateJsonSchema):
    """pydantic's titles repeat the keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


@cache
def _adapter() -> TypeAdapter[RunDocument]:
    return TypeAdapter(RunDocument)


def _renamed(data: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """With the keys of format 2."""
    legs = data.get("legs")
    if data["format_version"] != 1 or not isinstance(legs, list):
        return data
    return {**data, "legs": [_renamed_leg(leg) if isinstance(leg, dict) else leg for leg in legs]}


def _renamed_leg(leg: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {RENAMED_LEG_KEYS.get(key, key): value for key, value in leg.items()}


def _bad_field(path: Path, error: ValidationError) -> BadInput:
    first, *others = error.errors(include_url=False)
    key = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more)" if others else ""
    if first["type"] == "missing":
        return BadInput(path, f"required field is missing{more}", key=key)
    value = _short(first["input"])
    if first["type"] == "extra_forbidden":
        return BadInput(path, f"unknown field{more}", key=key, value=value)
    return BadInput(path, f"wrong value{more}", key=key, value=value, allowed=expected(first) or SCHEMA)


def _short(value: object) -> object:
    """`value`, or its type where it is long."""
    return value if len(repr(value)) <= LONGEST_VALUE else f"{type(value).__name__} of {len(repr(value))} characters"
