"""What the machine gives: cores, processes, locks, files."""
