"""Models, and the contract that all of them keep."""
