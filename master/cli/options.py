"""The two options by which a command that sends is told that it may do what is refused otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

AnyAddress = Annotated[
    bool, typer.Option("--allow-any-address", help="Send to addresses that the inventory has not under test.")
]
ControlInterface = Annotated[
    bool, typer.Option("--allow-control-interface", help="Send where the default route or the connection to us goes.")
]
