"""Train a tiny language model on this project's docs, stop it half-way, and resume it exactly.

`python examples/train_lm.py --plot loss.svg --steps 200` draws the picture in docs/tokens.md.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

import penstock
from penstock.index import create_tokenize_and_index_jsonl_text_func

DOCS = Path(__file__).resolve().parents[1] / "docs"
LENGTH = 128
END = "<|endoftext|>"


def prepare(folder: Path) -> int:
    """Write the docs as JSON Lines, train a tokenizer, tokenise; return the vocabulary size."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))]
    sections = [section for page in pages for section in page.split("\n## ")]
    with penstock.writer(str(folder / "docs.jsonl")) as out:
        out.write([{"text": section} for section in sections])

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        sections,
        trainers.BpeTrainer(
            vocab_size=2048,
            special_tokens=[END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    create_tokenize_and_index_jsonl_text_func(
        tokenizer_func=tokenizer.encode,
        eos_idx=tokenizer.token_to_id(END),
        input_base_path=str(folder),
        sample_size=LENGTH,
    )()
    return tokenizer.get_vocab_size()


class TinyLM(nn.Module):
    """Two layers of causal attention."""

    def __init__(self, vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token at every position."""
        here = torch.arange(ids.shape[1])
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        hidden = self.layers(self.embed(ids) + self.place(here), mask=mask, is_causal=True)
        return self.head(hidden)


def train(folder: Path, vocabulary: int, steps: int, checkpoint: Path) -> list[float]:
    """Train up to a step, from the checkpoint if it exists; return the losses."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # Several threads may change the order of sums, and the last digit.
    model = TinyLM(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = penstock.DataLoader(
        penstock.open(folder),
        penstock.Tokens(LENGTH),
        batch_size=8,
        shuffle=True,
        epochs=None,
    )
    losses: list[float] = []
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        losses = saved["losses"]
    for batch in loader:
        if len(losses) == steps:
            break
        logits = model(batch["input_ids"])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == steps:
            # Save here: after the loop, the batch that ended it would count as seen.
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "losses": losses,
                },
                checkpoint,
            )
            break
    return losses


def plot(losses: list[float], stop: int, path: Path) -> None:
    """Draw the losses, with a mark at the stop."""
    width, height, most = 640, 240, max(losses)
    x = [40 + (width - 60) * n / max(1, len(losses) - 1) for n in range(len(losses))]
    y = [20 + (height - 50) * (1 - loss / most) for loss in losses]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<line x1="{x[stop]:.1f}" y1="20" x2="{x[stop]:.1f}" y2="{height - 30}" '
        'stroke="gray" stroke-dasharray="4"/>\n'
        f'<text x="{x[stop] + 6:.1f}" y="30" fill="gray">stopped and resumed</text>\n'
        f'<polyline points="{points}" fill="none" stroke="steelblue" stroke-width="1.5"/>\n'
        f'<text x="4" y="24">{most:.1f}</text><text x="4" y="{y[-1]:.0f}">{losses[-1]:.1f}</text>\n'
        f'<text x="{width - 90}" y="{height - 8}">step {len(losses):,}</text>\n</svg>\n',
        encoding="utf-8",
    )


def main() -> None:
    """Compare a stopped run with an uninterrupted one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--plot", type=Path, help="an SVG file for the losses")
    options = parser.parse_args()
    stop = options.steps // 2
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "corpus"
        folder.mkdir()
        vocabulary = prepare(folder)
        whole = train(folder, vocabulary, options.steps, Path(root) / "whole.pt")
        stopped = Path(root) / "stopped.pt"
        train(folder, vocabulary, stop, stopped)
        resumed = train(folder, vocabulary, options.steps, stopped)
    print(json.dumps({"first loss": round(whole[0], 2), "last loss": round(whole[-1], 2)}))
    if resumed != whole:
        raise SystemExit("the resumed run differs")
    print(f"stopped after {stop} steps and resumed: {len(whole)} losses, equal to the last digit")
    if options.plot is not None:
        plot(whole, stop, options.plot)


if __name__ == "__main__":
    main()
