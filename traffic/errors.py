"""The errors that a user can see, and their exit statuses.

PktswarmError            3  the run is incomplete
├── BadInput             2  nothing was sent
├── NotAsExpected        1  a complete run did not meet its expectations
├── Busy                 3  others use the nodes, and nothing was sent
├── EngineError          3  an engine failed, or its output cannot be read
└── MessageError         3  a message between two processes of a run cannot be read
"""

from collections.abc import Sequence

EXIT_AS_EXPECTED = 0
EXIT_NOT_AS_EXPECTED = 1
EXIT_BAD_INPUT = 2
EXIT_INCOMPLETE = 3


class PktswarmError(Exception):
    """An error with a message for the user. `exit_status`: of the command line."""

    exit_status = EXIT_INCOMPLETE


class BadInput(PktswarmError):
    """Input that cannot be used. The message names the place, the value and the allowed range.

    `where`: a file or a host; `key`: the place inside it (``streams.0.rate_pps``).
    """

    exit_status = EXIT_BAD_INPUT

    def __init__(self, where: object, problem: str, *, key: str = "", value: object = None, allowed: str = "") -> None:
        self.where, self.problem, self.key, self.value, self.allowed = str(where), problem, key, value, allowed
        text = self.where
        if key:
            text += f": {key}"
        if value is not None:
            text += f" = {value!r}"
        text += f": {problem}"
        if allowed:
            text += f" (allowed: {allowed})"
        super().__init__(text)


class BadInputs(BadInput):
    """Several errors of one input, a line each."""

    def __init__(self, problems: Sequence[BadInput]) -> None:
        first = problems[0]
        super().__init__(first.where, first.problem, key=first.key, value=first.value, allowed=first.allowed)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class NotAsExpected(PktswarmError):
    """A complete run did not meet its expectations."""

    exit_status = EXIT_NOT_AS_EXPECTED


class Busy(PktswarmError):
    """Others use the nodes, or the cluster."""


class EngineError(PktswarmError):
    """An engine could not be started, died, or has an output that cannot be read."""

    def __init__(self, engine: str, problem: str, output: str = "") -> None:
        self.engine, self.problem, self.output = engine, problem, output
        super().__init__(f"{engine}: {problem}" + (f"\n{output.strip()}" if output.strip() else ""))


class MessageError(PktswarmError):
    """A message between two processes has an unknown name or field, or a field of a wrong type."""
