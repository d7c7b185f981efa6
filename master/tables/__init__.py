"""Tables and figures of the reference documents, made again: one a file."""
