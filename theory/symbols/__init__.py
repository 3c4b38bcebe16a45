"""notation, algebra, contraction, special."""
