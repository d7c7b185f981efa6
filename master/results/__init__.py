"""The counts of a run, its verdicts, and the results folder."""
