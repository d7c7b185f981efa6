"""Service activation tests after ITU-T Y.1564: each service alone, then all services at once."""
