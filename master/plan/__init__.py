"""From a scenario and an inventory to the tasks of each rank."""
