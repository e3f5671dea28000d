"""What functions say of loads and products that may come otherwise: in pieces or as a whole, a turn ahead or not."""

SPREAD = "tw.spread-ahead"  # what came in pieces might have been a whole, a turn ahead
KEEP = "tw.keep-ahead"  # what may be a whole, a turn ahead, is not to come in pieces
FAR_AHEAD = "tw.far-ahead"  # more goes in front of the work of the turn before than its queue holds
IN_TURN = "tw.in-turn"  # it is not to
