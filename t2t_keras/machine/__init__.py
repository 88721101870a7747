"""Resources of the machine: cores, processes, locks, files."""
