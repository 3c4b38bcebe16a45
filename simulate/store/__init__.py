"""The store of runs: files, checkpoints, and runs joined over seeds."""
