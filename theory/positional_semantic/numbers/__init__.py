"""Array code of the positional-semantic theory; every line that restates an equation names it."""
