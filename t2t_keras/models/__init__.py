"""Models, and the interfaces that they implement."""
