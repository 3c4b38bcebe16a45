"""All weights of induction heads: their equations, their times, Gaussian inputs."""
