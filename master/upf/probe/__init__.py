"""Find out what a UPF can do, by sessions of one user and single packets (`pktswarm upf probe`)."""
