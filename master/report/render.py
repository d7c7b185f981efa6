"""Renders HTML pages from master/templates. They have no external parts.

Their only script shows the values of plots under the pointer and zooms; a page is whole without it. The policy of the
page lets the browser fetch nothing and run nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pktswarm.master.report import formatting
from pktswarm.traffic import VERSION

FILTERS = ("count", "percent", "ratio", "microseconds", "pps", "bps", "seconds", "cpus")


def render(template: str, context: Mapping[str, object], base: str = "") -> str:
    """`base`: the address of the results folder, relative to the page."""
    templates = environment(base)
    style, script = (_source(templates, name) for name in ("report.css", "report.js"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    page = templates.get_template(template)
    parts = {"style": Markup(style), "script": Markup(script), "script_digest": digest}  # noqa: S704
    return page.render(**parts, version=VERSION, **context).lstrip()


@lru_cache(maxsize=2)
def environment(base: str) -> Environment:
    """For all pages of a process: compiling the templates takes longer than filling them in. Macros keep `base`."""
    made = Environment(
        loader=PackageLoader("pktswarm.master"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {name: getattr(formatting, name) for name in FILTERS}
    made.globals["base"] = base
    return made


def _source(environment: Environment, name: str) -> str:
    text, _, _ = environment.loader.get_source(environment, name)  # type: ignore[union-attr] # the loader is set by render
    return text
