"""A rank on a node: role loops, engines, guard."""

import traffic  # noqa: F401 - before numpy, whose threads it leaves out
