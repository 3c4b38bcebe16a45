"""runs, storage, checkpoints, joined=joined_runs."""
