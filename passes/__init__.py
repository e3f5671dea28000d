"""The compiler's passes, one file each: what a pass rewrites, under which conditions, and what it leaves true."""
