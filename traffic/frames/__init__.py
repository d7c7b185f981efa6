"""Frames: headers, templates, sizes, layout, stamps, and responses for addresses that a node proxies."""
