"""Forms of names and addresses in an inventory."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62})")
ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")
