"""What the papers derive: symbolic results that give LaTeX and fast numbers."""
