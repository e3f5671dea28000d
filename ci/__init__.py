"""What runs in CI, one script per job; each is callable alone as ``python -m ci.NAME``."""
