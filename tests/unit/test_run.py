"""How the command line follows a run, with a socket and no MPI."""

import socket
from types import SimpleNamespace
from typing import Any

from master.run import Run
from traffic.messages import Lines


def test_what_rank_0_said_before_it_ended_is_read_though_mpiexec_is_gone() -> None:
    ours, theirs = socket.socketpair()
    rank0 = Lines(theirs)
    launch = SimpleNamespace(alive=True)
    launch.running = lambda: launch.alive
    taken: list[str] = []

    def ends_while_the_terminal_is_drawn(*_: Any) -> None:
        if launch.alive:
            for name in ("restored", "over"):
                rank0.send({"event": name})
            launch.alive = False

    run: Any = SimpleNamespace(
        ledger=SimpleNamespace(over=False),
        watch=ends_while_the_terminal_is_drawn,
        _interrupts=0,
        _overdue=lambda: False,
        _pass_on_interrupts=lambda control: None,
        _end_without_upf=lambda control: None,
        _take=lambda event, raw, control: taken.append(event["event"]),
    )
    control = Lines(ours)
    Run._follow(run, control, launch)  # type: ignore[arg-type]
    assert taken == ["restored", "over"]
    assert control.closed
