"""In-context linear regression by linear attention (Zhang, Singh, Latham, Saxe,
arXiv:2501.16265), a model from outside the toolkit.
"""

from theory.registry import Model

CHECKS = ("gradients", "laws")
MODEL = Model(
    "linear_attention",
    "In-context linear regression by linear attention (Zhang et al.)",
    "zhang2025",
    CHECKS,
    {"merged": CHECKS, "separate": CHECKS},
    package="linear_attention",
)
