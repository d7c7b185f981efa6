"""Descriptions of the phases of a run, for the live view."""

DESCRIPTIONS = {
    "launch": "starting the ranks over SSH",
    "hello": "waiting for the nodes",
    "plan": "planning with the nodes' reports",
    "look": "checking the nodes' reports",
    "sessions": "setting up the sessions",
    "clocks": "reading the nodes' clocks",
    "prepare receivers": "arming the receivers",
    "prepare transmitters": "preparing the transmitters",
    "send": "sending",
    "drain": "waiting for frames in flight",
    "gather": "gathering the counts",
    "restore": "restoring the nodes",
    "over": "finished",
    "sessions' end": "deleting the sessions",
}


def describe(phase: str) -> str:
    return DESCRIPTIONS.get(phase, phase)
