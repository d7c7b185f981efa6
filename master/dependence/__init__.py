"""`pktswarm dependence`: estimates long-range dependence in arrivals."""
