"""A trace played by both ends at once: each sends its side, and only what the other side's packets allow."""
