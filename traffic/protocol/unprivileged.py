"""The account that ranks run as, and the way there: every rank, the master's too, gives up root for good."""

from __future__ import annotations

import os
import pwd

ACCOUNT = "pktswarm"
FALLBACK = "nobody"


def name(asked: str) -> str:
    """The account ranks run as: the one asked for, else pktswarm's own, else nobody. KeyError if it is not there."""
    if asked:
        return pwd.getpwnam(asked).pw_name
    try:
        return pwd.getpwnam(ACCOUNT).pw_name
    except KeyError:
        return FALLBACK


def become(user: str) -> None:
    """Become `user` for good (only root can; others stay who they are)."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.setgroups([])
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        os.environ["HOME"] = "/"
