"""Does the theory predict the students? Checks that are table, exit code and test at once."""
