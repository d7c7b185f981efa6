"""Renders HTML pages from master/templates. They have no scripts and no external parts."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pktswarm.master.report import formatting
from pktswarm.traffic import VERSION

FILTERS = ("count", "percent", "ratio", "microseconds", "pps", "bps", "seconds", "cpus")


def render(template: str, context: Mapping[str, object]) -> str:
    environment = Environment(
        loader=PackageLoader("pktswarm.master"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(formatting, name) for name in FILTERS}
    style, _, _ = environment.loader.get_source(environment, "report.css")  # type: ignore[union-attr] # the loader was given above
    page = environment.get_template(template)
    return page.render(style=Markup(style), version=VERSION, **context).lstrip()  # noqa: S704
