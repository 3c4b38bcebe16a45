"""In-context linear regression by linear attention (Zhang, Singh, Latham, Saxe,
arXiv:2501.16265), a model from outside the toolkit.
"""

from theory.registry import Model

TITLES = {
    "linear_attention": "In-context linear regression by linear attention (Zhang et al.)",
    "linear_attention.merged": "Key and query in one matrix: one abrupt drop",
    "linear_attention.separate": "Separate key and query: from saddle to saddle",
}
MODELS = [Model(name, title, "zhang2025", "linear_attention") for name, title in TITLES.items()]
MODELS.append(
    Model(
        "linear_attention.proportional",
        "Linear attention fitted in the proportional limit (Lu et al.)",
        "zhang2025",
        "linear_attention",
        beside=True,
    )
)
