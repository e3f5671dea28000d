"""What is said of a compilation and of a run: as data, and as text for people."""
