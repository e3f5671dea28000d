"""The emulated chip: a reference interpreter and a pipeline simulator over the same table."""
