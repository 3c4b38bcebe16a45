"""In-context linear regression by linear attention (Zhang, Singh, Latham, Saxe,
arXiv:2501.16265), a model from outside the toolkit.
"""

from theory.models.model import Model

NAME = "linear_attention"
TITLES = {
    "": "In-context linear regression by linear attention (Zhang et al.)",
    ".merged": "Key and query in one matrix: one abrupt drop",
    ".separate": "Separate key and query: from saddle to saddle",
}
MODELS = [Model(NAME + s, t, "zhang2025", NAME) for s, t in TITLES.items()]
