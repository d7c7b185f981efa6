"""The phases of a run in words."""

WORDS = {
    "launch": "starting the ranks over SSH",
    "hello": "waiting for the nodes",
    "plan": "planning with what the nodes told",
    "look": "looking at what the nodes told",
    "sessions": "setting up the sessions",
    "clocks": "reading the nodes' clocks",
    "prepare receivers": "arming the receivers",
    "prepare transmitters": "preparing the transmitters",
    "send": "sending",
    "drain": "waiting for frames in flight",
    "gather": "gathering the counts",
    "restore": "restoring the nodes",
    "over": "over",
    "sessions' end": "deleting the sessions",
}


def words_of(phase: str) -> str:
    return WORDS.get(phase, phase)
