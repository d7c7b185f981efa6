"""Everything on the master: inventory, scenario, plan, launch, rank 0, results, command line."""

import traffic  # noqa: F401 - before numpy, whose threads it leaves out
