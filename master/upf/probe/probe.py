"""A probe from its association to its end: what is tried, and in which order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pktswarm.master.scenario import upf_features
from pktswarm.master.upf import pfcp_encode
from pktswarm.master.upf.probe import variants
from pktswarm.master.upf.probe.findings import Finding, Findings, Outcome
from pktswarm.master.upf.probe.paths import Paths
from pktswarm.master.upf.probe.plane import UserPlane
from pktswarm.master.upf.probe.procedures import Procedures
from pktswarm.master.upf.probe.signalling import Signalling
from pktswarm.master.upf.probe.trials import Trials
from pktswarm.master.upf.probe.users import Users


class Probe:
    """`findings` grows while run() works."""

    def __init__(
        self,
        signalling: Signalling,
        plane: UserPlane | None,
        n3_ipv6: str,
        base: dict[str, Any],
        progress: Callable[[str], None],
    ) -> None:
        """`plane`, `n3_ipv6`, `progress`: see Trials; `base`: keys of the section upf that each session needs."""
        self.n4 = signalling
        self.findings = Findings(signalling.upf.n4, group_keys=dict(base.get("group", {})))
        self.users = Users(signalling.where, signalling.upf, signalling.own, base)
        self.trials = Trials(signalling, plane, n3_ipv6, self.users, self.findings, progress)

    def run(self) -> Findings:
        """BadInput where there is no association; UpfLostError where the UPF stops answering in the midst."""
        try:
            self._associate()
            if self._plain_session() is not None:
                for variant in variants.PLAIN:
                    self.trials.attempt(variant)
                Procedures(self.trials).run()
                if self.trials.plane is not None:
                    Paths(self.trials, self.trials.plane).run()
        finally:
            self._end()
            self.findings.seconds = time.monotonic() - self.trials.began
        return self.findings

    def _associate(self) -> None:
        self.trials.progress("association")
        answer = self.n4.associate()
        found = self.findings
        found.node_id, found.recovery_stamp = answer.node_id, answer.recovery_stamp
        found.features = upf_features.names(answer.features)
        words = "features: " + (" ".join(found.features) or "none announced")
        self.trials.add("association", "association setup", "TS 29.244 6.2.6", Outcome("works", words))
        self.trials.add("association", "heartbeat", "TS 29.244 6.2.2", self.trials.beat())

    def _plain_session(self) -> Finding | None:
        """Tries the forms in which a UPF may want a plain session; the first one that works is the others' base."""
        found: list[tuple[Finding, dict[str, Any]]] = []
        for variant in (variants.TWO_OCTETS, variants.ONE_OCTET):
            found.append((self.trials.attempt(variant), variant.upf))
        with_types = next((upf for finding, upf in found if finding.works), None)
        without = replace(variants.WITHOUT_TYPES, upf={**variants.WITHOUT_TYPES.upf, **(with_types or {})})
        found.append((self.trials.attempt(without), without.upf))
        if with_types is None and not found[-1][0].works:
            older = replace(without, name=variants.WITHOUT_TYPES_OLD, upf={**without.upf, "release": 15})
            found.append((self.trials.attempt(older), older.upf))
        accepted = [one for one in found if one[0].n4 is not None and one[0].n4.works]
        best = next((one for one in found if one[0].works), accepted[0] if accepted else None)
        if best is None:
            return None
        self.users.base = {**self.users.base, "upf": {**self.users.base.get("upf", {}), **best[1]}}
        return best[0]

    def _end(self) -> None:
        """Deletes what stands, then asks for what only an association's end can show."""
        for seid in list(self.n4.sessions):
            self.n4.delete(seid)
        self.findings.left_sessions = len(self.n4.sessions)
        if self.findings.get("heartbeat") is None or not self.trials.beat().works:
            return
        update = self.n4.ask(lambda sequence: pfcp_encode.association_update_request(self.n4.own, sequence))
        self.trials.add("association", "association update", "TS 29.244 6.2.7", self.n4.outcome(update))
        beats = self.n4.heartbeats
        words = f"{beats} in {time.monotonic() - self.trials.began:.0f} s"
        own = Outcome("works", words) if beats else Outcome("not asked", "none came while the probe ran")
        self.trials.add("association", "heartbeats of the UPF", "TS 29.244 6.2.2", own)
        self.trials.add("association", "association release", "TS 29.244 6.2.8", self.n4.release())
