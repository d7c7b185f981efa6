"""Messages for values that a model refuses: one wording for each kind of error, every error of a file at once."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pktswarm.master.scenario.fields import unit_of
from pktswarm.traffic import units
from pktswarm.traffic.errors import BadInput, BadInputs

TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "path": "a path",
    "ip_v4_address": "an IPv4 address",
    "ip_v6_address": "an IPv6 address",
    "ip_any_address": "an IP address",
}
"""First part of the name of pydantic's error → what the value must be."""
FORMS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$": "1 to 40 letters, digits and . _ -, a letter or digit first",
    units.SHARE_PATTERN: "a percentage: 0.1 %",
    r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$": "six hexadecimal bytes, lower case: 02:00:00:00:00:01",
    r"^[a-z0-9_-]{1,15}$": "a name like cubic, reno or bbr",
}
LIMITS = {"greater_than": "more than {gt}", "greater_than_equal": "{ge} or more"} | {
    "less_than": "below {lt}",
    "less_than_equal": "up to {le}",
    "multiple_of": "a multiple of {multiple_of}",
}
LENGTHS = {
    "too_short": "{min_length} or more items",
    "too_long": "up to {max_length} items",
    "string_too_short": "{min_length} or more characters",
    "string_too_long": "up to {max_length} characters",
}


def refuse(path: Path, error: ValidationError, model: type[BaseModel], data: Any, under: str = "") -> BadInput:
    """All errors of a file as one. `data`: the validated content; `under`: key of the section that it is."""
    errors = error.errors(include_url=False)
    by_key: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for each in errors:
        by_key.setdefault(_keys(each, data), []).append(each)
    # A key with an error inside one branch of a union is not of a wrong type.
    problems = [
        _problem(path, keys, by_key[keys], model, under)
        for keys in by_key
        if not any(other != keys and other[: len(keys)] == keys and _only_types(by_key[keys]) for other in by_key)
    ]
    return together(problems)


def together(problems: Sequence[BadInput]) -> BadInput:
    return problems[0] if len(problems) == 1 else BadInputs(problems)


def located(path: Path, error: BadInput, loader: type[yaml.SafeLoader]) -> BadInput:
    """The error with the lines of its keys, where the file has them."""
    try:
        root = yaml.compose(path.read_text(), loader)
    except (OSError, ValueError, yaml.YAMLError):
        return error
    made = [_with_line(path, each, root) for each in (error.problems if isinstance(error, BadInputs) else [error])]
    return together(made)


def _with_line(path: Path, error: BadInput, root: yaml.Node | None) -> BadInput:
    key = error.key or next(iter(error.problem.split()), "").rstrip(":")
    if error.where != str(path) or root is None or not (line := _line(root, key.split("."))):
        return error
    where = f"{path}:{line}"
    return BadInput(where, error.problem, key=error.key, value=error.value, allowed=error.allowed)


def _line(node: yaml.Node, keys: Iterable[str]) -> int:
    """The line of the last key that the file has; 0: it has none."""
    line = 0
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == key), None)
            if pair is None:
                break
            node, line = pair[1], pair[0].start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
            node = node.value[int(key)]
            line = node.start_mark.line + 1
        else:
            break
    return line


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is nearest to `word`; empty: none is near."""
    known = list(known)
    longer = [name for name in known if name.startswith(f"{word}_")]
    return next(iter(longer or difflib.get_close_matches(word, known, 1, 0.6)), "")


def _problem(
    path: Path, keys: tuple[int | str, ...], errors: list[ErrorDetails], model: type[BaseModel], under: str
) -> BadInput:
    first = errors[0]
    key = ".".join(([under] if under else []) + [str(part) for part in keys])
    kind, context, given = first["type"], first.get("ctx") or {}, first["input"]
    value = given if isinstance(given, (str, int, float, bool)) else None
    if kind == "extra_forbidden":
        known = _known(model, keys[:-1])
        near = nearest(str(keys[-1]), known)
        problem = f"unknown key; the nearest is {near!r}" if near else "unknown key"
        return BadInput(path, problem, key=key, allowed=", ".join(known))
    if kind == "missing":
        return BadInput(path, "missing key", key=key)
    if kind == "value_error":
        message = first["msg"].removeprefix("Value error, ")
        return BadInput(path, message[:1].lower() + message[1:], key=key, value=value)
    unit = _unit(keys)
    symbol = f" {unit.symbol}" if unit.symbol else ""
    if kind in LIMITS or kind in LENGTHS:
        allowed = (LIMITS | LENGTHS)[kind].format(**{name: _text(limit) for name, limit in context.items()})
        return BadInput(path, "out of range", key=key, value=value, allowed=allowed + symbol)
    if len(errors) == 1 and kind == "literal_error":
        return _choice(path, key, value, str(context["expected"]))
    if isinstance(given, str) and unit is not units.PLAIN:
        try:
            units.parse(given, unit, units.Range(whole=all(each["type"].startswith("int") for each in errors)))
        except units.UnitError as wrong:
            shares = [expected(each) for each in errors if each["type"] == "string_pattern_mismatch"]
            return BadInput(path, wrong.problem, key=key, value=value, allowed=" or ".join([wrong.allowed, *shares]))
    allowed = " or ".join(dict.fromkeys(word for each in errors if (word := expected(each))))
    problem = "has no value" if given is None else "cannot be used"
    return BadInput(path, problem, key=key, value=value, allowed=allowed)


def _unit(keys: tuple[int | str, ...]) -> units.Unit:
    """The unit of a key; of an entry of a mapping by name (`sent: {hello: 5}`) that of the mapping."""
    found = [unit for key in reversed(keys[-2:]) if (unit := unit_of(str(key))) is not units.PLAIN]
    return found[-1] if found else units.PLAIN


def _choice(path: Path, key: str, value: object, expected: str) -> BadInput:
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
    near = nearest(str(value), choices)
    problem = f"unknown choice; the nearest is {near!r}" if near else "unknown choice"
    return BadInput(path, problem, key=key, value=value, allowed=", ".join(choices))


def expected(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        return FORMS.get(pattern, f"a text like {pattern}")
    if kind in LIMITS or kind in LENGTHS:
        return (LIMITS | LENGTHS)[kind].format(**context)
    return next((words for start, words in TYPES.items() if kind.startswith(f"{start}_") or kind == start), "")


def _only_types(errors: list[ErrorDetails]) -> bool:
    return all(error["type"].endswith(("_type", "_parsing")) or error["type"] == "literal_error" for error in errors)


def _keys(error: ErrorDetails, data: Any) -> tuple[int | str, ...]:
    """The keys of the file: pydantic adds the name of the branch of a union that it tried."""
    keys: list[int | str] = []
    parts = error["loc"]
    for place, part in enumerate(parts):
        inside = part in data if isinstance(data, Mapping) else isinstance(data, list) and isinstance(part, int)
        if inside:
            data = data[part]
        elif place < len(parts) - 1 or error["type"] != "missing":
            continue
        keys.append(part)
    return tuple(keys)


def _known(model: type[BaseModel], keys: Iterable[int | str]) -> list[str]:
    """The keys of the model that stands at `keys`."""
    for key in keys:
        if isinstance(key, int):
            continue
        field = next((each for name, each in model.model_fields.items() if (each.alias or name) == key), None)
        if field is not None:
            model = next(_models(field.annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated, list, dict, tuple):
        for part in get_args(annotation):
            yield from _models(part)


def _text(value: object) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)
