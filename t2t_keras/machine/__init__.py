"""Resources of the machine: cores, processes, memory, locks, files and object storage."""
