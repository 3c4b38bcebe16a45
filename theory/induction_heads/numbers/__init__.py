"""Array code of the induction-head theory; every line that restates an equation names it."""
