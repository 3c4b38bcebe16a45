"""A. Bietti: slides 'Some mechanisms in transformers and their emergence' (2025), and
the papers behind them.
"""

from pathlib import Path

from papers import source as document
from papers.bietti2025.figures import FIGURES
from papers.source import Source, check_table
from theory import associative_memory
from theory.models import write_up
from verify.associative_memory import factual_recall as recall_gradients
from verify.associative_memory import gradient_memory as lemma_gradients

__all__ = ["FIGURES", "write_all"]


# The write-up

HERE = Path(__file__).parent
AFTER = {  # figures behind the last section they belong to
    "Factual recall: hitting times": ("recall", "plateau"),
    "One gradient step, and descent to the end": ("one_step",),
    "Superposition: recall and capacity": ("capacity",),
    "Trigger task: sequences, memories, probes": ("probes", "layers"),
    "Three gradient steps: population gradients": ("steps",),
    "Noisy bigrams: samples needed": ("samples", "ablation"),
    "k hops: overlaps": ("hops", "pointers"),
}
INTRODUCTION = (
    "Systems behind the slides of A. Bietti, 'Some mechanisms in transformers and their"
    " emergence' (2025). Every formula below was derived by computer algebra; where a"
    " reference says 'derived here', the result is not in the slides."
)


def generate() -> str:
    """Whole document."""
    lines = [
        document.PREAMBLE,
        "\\begin{document}",
        "\\title{Weights as associative memories}\\date{}\\maketitle",
        write_up.escape(INTRODUCTION),
    ]
    for name, section in associative_memory.sections().items():
        lines += [
            f"\\section{{{write_up.escape(name)}}}",
            *(write_up.display(e) for e in section),
        ]
        lines += [
            document.picture(figure, FIGURES[figure].caption)
            for figure in AFTER.get(name, ())
        ]
    lines += [
        "\\section{Derivatives against autograd}",
        check_table([*recall_gradients.checks(), *lemma_gradients.checks()]),
        "\\section{Claims}",
        document.claims_table(HERE),
        "\\end{document}",
    ]
    return "\n".join(lines) + "\n"


def write_all(source: Source, out: Path) -> list[Path]:
    """All figures and the write-up."""
    return document.write_all(source, out, FIGURES, generate)
