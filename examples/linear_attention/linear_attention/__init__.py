"""In-context linear regression by linear attention (Zhang, Singh, Latham, Saxe,
arXiv:2501.16265), a model from outside the toolkit.
"""

from theory.registry import Model

NAME, BESIDE = "linear_attention", ".proportional"
TITLES = {
    "": "In-context linear regression by linear attention (Zhang et al.)",
    ".merged": "Key and query in one matrix: one abrupt drop",
    ".separate": "Separate key and query: from saddle to saddle",
    BESIDE: "Linear attention fitted in the proportional limit (Lu et al.)",
}
MODELS = [Model(NAME + s, t, "zhang2025", NAME, beside=s == BESIDE) for s, t in TITLES.items()]
