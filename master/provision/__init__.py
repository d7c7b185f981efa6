"""`pktswarm provision`: makes a system with SSH a node, with wheels from the master and the playbooks of ansible/."""
