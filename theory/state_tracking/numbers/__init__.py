"""Array code of the state-tracking theory; every line that restates an equation names it."""
