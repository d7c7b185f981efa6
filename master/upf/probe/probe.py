"""A probe from association to release: the tests and their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from pktswarm.master.scenario import upf_features
from pktswarm.master.upf import pfcp_encode
from pktswarm.master.upf.probe import variants
from pktswarm.master.upf.probe.findings import GROUP_KEYS, Finding, Findings, Outcome
from pktswarm.master.upf.probe.paths import Paths
from pktswarm.master.upf.probe.plane import UserPlane
from pktswarm.master.upf.probe.procedures import Procedures
from pktswarm.master.upf.probe.signalling import Signalling
from pktswarm.master.upf.probe.trials import Trials
from pktswarm.master.upf.probe.users import Users
from pktswarm.master.upf.probe.variants import Keys


class Probe:
    """`findings` grows during run()."""

    def __init__(
        self,
        signalling: Signalling,
        plane: UserPlane | None,
        n3_ipv6: str,
        base: Mapping[str, Mapping[str, str]],
        progress: Callable[[str], None],
    ) -> None:
        """`plane`, `n3_ipv6`, `progress`: see Trials; `base["group"]`: group keys of each session."""
        self.n4 = signalling
        group = base.get("group", {})
        keys = {key: group[key] for key in GROUP_KEYS if key in group}
        self.findings = Findings(signalling.upf.n4, group_keys=keys)
        self.users = Users(signalling.where, signalling.upf, signalling.own, base)
        self.trials = Trials(signalling, plane, n3_ipv6, self.users, self.findings, progress)

    def run(self) -> Findings:
        """Runs all tests. Raises BadInput without an association, UpfLostError if the UPF stops responding."""
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
        """Tries the encodings of a plain session that UPFs accept; the first that works is the base of all others."""
        found: list[tuple[Finding, Keys]] = []
        for variant in (variants.TWO_OCTETS, variants.ONE_OCTET):
            found.append((self.trials.attempt(variant), variant.upf))
        with_types = next((upf for finding, upf in found if finding.works), None)
        without = replace(variants.WITHOUT_TYPES, upf={**variants.WITHOUT_TYPES.upf, **(with_types or {})})
        found.append((self.trials.attempt(without), without.upf))
        if with_types is None and not found[-1][0].works:
            older = replace(without, name=variants.WITHOUT_TYPES_OLD, upf={**without.upf, "release": 15})
            found.append((self.trials.attempt(older), older.upf))
        accepted = [pair for pair in found if pair[0].n4 is not None and pair[0].n4.works]
        best = next((pair for pair in found if pair[0].works), accepted[0] if accepted else None)
        if best is None:
            return None
        self.users.base = {**self.users.base, "upf": {**self.users.base.get("upf", {}), **best[1]}}
        return best[0]

    def _end(self) -> None:
        """Deletes all sessions, then tests the procedures of an association's end."""
        for seid in list(self.n4.sessions):
            self.n4.delete(seid)
        self.findings.left_sessions = len(self.n4.sessions)
        if self.findings.get("heartbeat") is None or not self.trials.beat().works:
            return
        update = self.n4.ask(lambda sequence: pfcp_encode.association_update_request(self.n4.own, sequence))
        self.trials.add("association", "association update", "TS 29.244 6.2.7", self.n4.outcome(update))
        beats = self.n4.heartbeats
        words = f"{beats} in {time.monotonic() - self.trials.began:.0f} s"
        own = Outcome("works", words) if beats else Outcome("not asked", "none received during the probe")
        self.trials.add("association", "heartbeats of the UPF", "TS 29.244 6.2.2", own)
        self.trials.add("association", "association release", "TS 29.244 6.2.8", self.n4.release())
