"""`pktswarm recount`: counts again offline, from the captures against what was sent, and compares with the run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from master.results import Folder
from traffic.capture_file import read_capture
from traffic.errors import BadInput
from traffic.frames import build_frame
from traffic.match import Match
from traffic.recount import recount_stream, recount_trace
from traffic.task import Leg, leg_from_json
from traffic.traces import read_trace
