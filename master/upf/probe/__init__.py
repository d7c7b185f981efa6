"""`pktswarm upf probe`: tests a UPF's procedures with sessions of one user and single packets."""
