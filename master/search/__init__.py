"""The highest rate at which no more than a given share of a scenario's streams is lost."""
