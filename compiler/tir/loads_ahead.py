"""What functions say of loads that may come in pieces, or as a whole a turn ahead of their use."""

SPREAD = "tw.spread-ahead"  # what came in pieces might have been a whole, a turn ahead
KEEP = "tw.keep-ahead"  # what may be a whole, a turn ahead, is not to come in pieces
