"""The N4 side of a UPF under test: pktswarm as the SMF (3GPP TS 29.244, PFCP)."""
