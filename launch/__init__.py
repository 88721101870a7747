"""The programs: flags in, one call, an exit status out."""
