"""Everything on the master: inventory, scenario, plan, launch, rank 0, results, command line."""
