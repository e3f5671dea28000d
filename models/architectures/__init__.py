"""The architectures of the zoo, one per file: functions that add their nodes to a graph."""
