"""Conclusions from a probe's findings: the profile for later runs, and the exit status."""

from __future__ import annotations

from pktswarm.master.scenario.upf_profile import Numbered, Profile
from pktswarm.master.upf.probe import variants
from pktswarm.master.upf.probe.findings import Finding, Findings, Outcome
from pktswarm.traffic.errors import EXIT_AS_EXPECTED, EXIT_INCOMPLETE, EXIT_NOT_AS_EXPECTED


def status(findings: Findings) -> int:
    """Returns 0 if a session is established and passes packets both ways, else 1; 3 if a session is left."""
    if findings.left_sessions:
        return EXIT_INCOMPLETE
    return EXIT_AS_EXPECTED if _plain(findings) is not None else EXIT_NOT_AS_EXPECTED


def profile(findings: Findings, made: str) -> Profile | None:
    """Returns the profile for later runs; None if no session can be established."""
    release, interface_types = _form(findings)
    if release is None:
        return None
    return Profile(
        made=made,
        n4=findings.n4,
        node_id=findings.node_id,
        features=findings.features,
        release=16 if release == 16 else 15,
        interface_types=interface_types,
        instances_as="text" if _only_as_text(findings) else "labels",
        numbered=_numbered(findings),
        association_release=findings.works("association release"),
        groups=findings.group_keys,
        end_markers=_does(findings, variants.HANDOVER.name),
        found={row.name: describe(row) for row in findings.rows},
    )


def describe(row: Finding) -> str:
    """Returns one line for the profile."""
    parts = [
        (name, outcome) for name, outcome in (("N4", row.n4), ("up", row.up), ("down", row.down)) if outcome is not None
    ]
    if row.works:
        return "; ".join(["works", *(outcome.words for _, outcome in parts if outcome.words)])
    return "; ".join(f"{name}: {describe_outcome(outcome)}" for name, outcome in parts if not outcome.works)


def describe_outcome(outcome: Outcome) -> str:
    return f"{outcome.state} ({outcome.words})" if outcome.words else outcome.state


def _accepted(findings: Findings, name: str) -> bool:
    row = findings.get(name)
    return row is not None and row.n4 is not None and row.n4.works


def _form(findings: Findings) -> tuple[int | None, bool]:
    """Returns release and interface types of the first plain session that passed packets, else was accepted."""
    forms = (
        (variants.TWO_OCTETS.name, 16, True),
        (variants.ONE_OCTET.name, 15, True),
        (variants.WITHOUT_TYPES.name, 15 if not _accepted(findings, variants.TWO_OCTETS.name) else 16, False),
        (variants.WITHOUT_TYPES_OLD, 15, False),
    )
    for is_so in (findings.works, lambda name: _accepted(findings, name)):
        for name, release, interface_types in forms:
            if is_so(name):
                return release, interface_types
    return None, True


def _plain(findings: Findings) -> Finding | None:
    names = (variants.TWO_OCTETS.name, variants.ONE_OCTET.name, variants.WITHOUT_TYPES.name, variants.WITHOUT_TYPES_OLD)
    rows = [findings.get(name) for name in names]
    return next((row for row in rows if row is not None and all(_fine(outcome) for outcome in row.outcomes())), None)


def _fine(outcome: Outcome) -> bool:
    """Returns whether the outcome is no failure of the UPF."""
    return outcome.state in ("works", "not asked")


def _only_as_text(findings: Findings) -> bool:
    labels, text = "network instance as labels", "network instance as text"
    return findings.works(text) and not findings.works(labels)


def _numbered(findings: Findings) -> list[Numbered]:
    """Returns what the UPF announces to choose, and does not."""
    pairs: tuple[tuple[str, str, Numbered], ...] = (
        ("FTUP", variants.CHOSEN_TEID.name, "teids"),
        ("FTUP", variants.CHOSEN_TEID_IPV6.name, "teids_ipv6"),
        ("UEIP", variants.CHOSEN_USER.name, "ue_addresses"),
    )
    return [key for feature, name, key in pairs if feature in findings.features and not _does(findings, name)]


def _does(findings: Findings, name: str) -> bool:
    """Returns whether the request was accepted or not sent, regardless of packets."""
    row = findings.get(name)
    return row is None or row.n4 is None or _fine(row.n4)
