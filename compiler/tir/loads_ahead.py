"""What functions say of loads and products that may come otherwise: in pieces or as a whole, a turn ahead or not."""

SPREAD = "tw.spread-ahead"  # what came in pieces might have been a whole, a turn ahead
KEEP = "tw.keep-ahead"  # what may be a whole, a turn ahead, is not to come in pieces
PRODUCTS_AHEAD = "tw.products-ahead"  # products go in front of what the vector unit does with those before
IN_TURN = "tw.in-turn"  # they are not to
