"""From a fresh system with SSH to a node: wheels gathered on the master, and the playbooks of ansible/."""
