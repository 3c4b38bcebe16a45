"""What the papers train: PyTorch students that return labelled datasets."""
