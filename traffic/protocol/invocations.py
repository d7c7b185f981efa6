"""What passes between a command line and the process that is loaded already and works in its place."""

from __future__ import annotations

from pktswarm.traffic.plain import plain
from pktswarm.traffic.protocol.codec import Decoder, Event, Order


@plain
class Invoke(Order):
    """Work for a command. `program`: its argv[0]. Behind the first byte of the connection came the descriptors of its
    standard input, output, error, and working directory."""

    NAME = "invoke"
    program: str
    words: list[str]
    environment: dict[str, str]


@plain
class Go(Order):
    """The command line passes on signals from now on."""

    NAME = "go"


Invocation = Invoke | Go
decode_invocation: Decoder[Invocation] = Decoder(Invocation)


@plain
class Ready(Event):
    """Process `pid` begins at Go."""

    NAME = "ready"
    pid: int


@plain
class Declined(Event):
    """The command line has to work itself."""

    NAME = "declined"
    reason: str


@plain
class Ended(Event):
    """Exit status of the command; a signal's number less than 0, if that ended it."""

    NAME = "ended"
    status: int


InvocationEvent = Ready | Declined | Ended
decode_invocation_event: Decoder[InvocationEvent] = Decoder(InvocationEvent)
