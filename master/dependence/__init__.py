"""`pktswarm dependence`: long-range dependence in arrivals."""
