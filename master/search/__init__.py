"""The highest rate at which a scenario's streams lose no more than an allowed share."""
