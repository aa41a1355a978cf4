"""A campaign that tries to break the commands: kills, power cuts, damage, faults, arguments."""
