"""Tables and figures of the reference documents, measured again."""
