"""Errors on their way from a worker to the program that it works for."""

from __future__ import annotations

import json

from pktswarm.master.api.orders import Failed, Problem
from pktswarm.traffic.errors import BadInput, BadInputs, Busy, PktswarmError


def to_event(error: PktswarmError) -> Failed:
    problems = error.problems if isinstance(error, BadInputs) else (error,)
    kind = next(kind.__name__ for kind in (Busy, BadInput, PktswarmError) if isinstance(error, kind))
    return Failed(kind, error.exit_status, [_problem(each) for each in problems])


def _problem(error: PktswarmError) -> Problem:
    if not isinstance(error, BadInput):
        return Problem(str(error))
    value = "" if error.value is None else json.dumps(error.value, default=str)
    return Problem(str(error), error.where, error.problem, error.key, value, error.allowed)


def to_error(event: Failed) -> PktswarmError:
    if event.kind == BadInput.__name__:
        errors = [_bad_input(each) for each in event.problems]
        return errors[0] if len(errors) == 1 else BadInputs(errors)
    error = (Busy if event.kind == Busy.__name__ else PktswarmError)(event.problems[0].text)
    error.exit_status = event.exit_status
    return error


def _bad_input(problem: Problem) -> BadInput:
    value = json.loads(problem.value) if problem.value else None
    return BadInput(problem.where, problem.problem, key=problem.key, value=value, allowed=problem.allowed)
