"""Small trained checkpoints, and how they were made: see `train` and `corpus`."""
