"""Dependence in arrivals: inter-arrival times, autocorrelation, and the Hurst exponent by four estimators.

    arrivals = read_arrivals(Path("trace.pcap"))
    for case in five_cases(arrivals.times_ns, repeat=4, scale=4):
        report = analyse(case.times_ns, case.name)

docs/dependence.md defines the figures.
"""

from pktswarm.traffic.dependence.arrivals import Arrivals, read_arrivals
from pktswarm.traffic.dependence.cases import STARTS, Case, Start, five_cases, repeated, scaled
from pktswarm.traffic.dependence.estimate import CONFIDENCE, Diagram, Estimate
from pktswarm.traffic.dependence.report import ESTIMATORS, Dependence, analyse, check_estimators

__all__ = [
    "CONFIDENCE",
    "ESTIMATORS",
    "STARTS",
    "Arrivals",
    "Case",
    "Dependence",
    "Diagram",
    "Estimate",
    "Start",
    "analyse",
    "check_estimators",
    "five_cases",
    "read_arrivals",
    "repeated",
    "scaled",
]
