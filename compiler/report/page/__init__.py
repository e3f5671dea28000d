"""A profile as one HTML file that needs nothing else: no network, no other file, pictures and all."""
