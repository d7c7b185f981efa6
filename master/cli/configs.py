"""`pktswarm configs`: the scenarios and inventories that ship with the program."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from pktswarm.master.cli import complete
from pktswarm.master.cli.options import Json, examples

EXAMPLES = examples("configs", "configs first > mine.yaml", "configs hosts/example.yml > hosts.yml")


def configs(
    name: Annotated[
        str | None,
        typer.Argument(help="Scenario or inventory to print.", show_default="a list", autocompletion=complete.shipped),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the scenarios and inventories that ship with pktswarm, or print one of them.

    Every command takes the name of a shipped scenario in place of a file: pktswarm run first.
    """
    from pktswarm.master import shipped

    if name is not None:
        print(shipped.read(name), end="")
        return
    every = shipped.everything()
    if as_json:
        print(json.dumps({"configs": [{**asdict(one), "path": str(one.path)} for one in every]}))
        return
    width = max(len(one.name) for one in every)
    for one in every:
        print(f"{one.name:{width}}  {one.description}".rstrip())
