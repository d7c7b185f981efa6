"""The account of the ranks. Every rank, the master's included, gives up root for good."""

from __future__ import annotations

import os
import pwd

ACCOUNT = "pktswarm"
FALLBACK = "nobody"


def name(wanted: str) -> str:
    """Returns the account of the ranks: `wanted`, else pktswarm, else nobody. KeyError: no such account."""
    if wanted:
        return pwd.getpwnam(wanted).pw_name
    try:
        return pwd.getpwnam(ACCOUNT).pw_name
    except KeyError:
        return FALLBACK


def become(user: str) -> None:
    """Changes to `user` for good. A process that is not root keeps its user."""
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.setgroups([])
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        os.environ["HOME"] = "/"
