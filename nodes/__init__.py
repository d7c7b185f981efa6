"""A rank on a node: role loops, engines, guard."""
