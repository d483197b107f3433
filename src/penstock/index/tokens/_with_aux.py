"""Token samples with further arrays beside the tokens, as data-forager 0.2.0 makes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from penstock.errors import OptionError
from penstock.index._indexer import FileTextLinesIndexer, IndexStore, IndexStoreInterface
from penstock.index._sample_schema import ArraySpec, SampleSchema
from penstock.index.tokens._generator import TokenizedSampleGenerator
from penstock.index.tokens._inputs import given_input, listed_lines
from penstock.index.tokens._job import POSTFIX
from penstock.index.tokens._tokenize import Path, token_places
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    import logging
    import os

    from numpy.typing import DTypeLike, NDArray


_TOKENS = "tokens"


@dataclass(slots=True)
class Part:
    """A piece of a document, of a type such as "prompt" or "response"."""

    type: str
    text: str


ProcessPartsFunc: TypeAlias = Callable[[bytes], list[Part]]
"""A function from a line to the parts of its document."""


class AuxDataGenerator(Protocol):
    """Makes one value for each token of a part."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""

    def generate(
        self, part_type: str, num_tokens: int, *, part_tokens: list[int] | None = None
    ) -> list[int]:
        """Return the values of a part."""

    def generate_for_eos(self) -> int:
        """Return the value of the token that ends a document."""


class LossMaskGenerator:
    """Says which tokens are left out of the loss: 1 for parts of `masked_types`, 0 for others.

    >>> LossMaskGenerator().generate("prompt", 3), LossMaskGenerator().generate("response", 2)
    ([1, 1, 1], [0, 0])
    """

    def __init__(
        self,
        masked_types: Collection[str] | None = None,
        mask_eos: bool = False,  # noqa: FBT001, FBT002 (positional where it comes from)
    ) -> None:
        self._masked = frozenset(("system", "prompt") if masked_types is None else masked_types)
        self._eos = int(mask_eos)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values, uint8."""
        return np.dtype(np.uint8)

    def generate(
        self, part_type: str, num_tokens: int, *, part_tokens: list[int] | None = None
    ) -> list[int]:
        """Return the mask of a part."""
        return [int(part_type in self._masked)] * num_tokens

    def generate_for_eos(self) -> int:
        """Return the mask of the token that ends a document."""
        return self._eos


class TokenizedSampleWithAuxGenerator(TokenizedSampleGenerator):
    """Makes samples of tokens and further arrays, one value per token, for `FileTextLinesIndexer`.

    `process_parts_func` makes the parts of a line. Each of `aux_generators` makes an array of its
    name from the types and tokens of the parts. A sample is stored as its tokens and then its
    arrays in the order of their names; documents are packed as `TokenizedSampleGenerator` does.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (as data-forager has it)
        self,
        process_parts_func: ProcessPartsFunc,
        tokenizer_func: Callable[..., Any] | object,
        eos_idx: int,
        aux_generators: Mapping[str, AuxDataGenerator],
        token_dtype: DTypeLike = np.uint32,
        sample_size: int = 4096,
        base_output_path: str | os.PathLike[str] | None = None,
        file_name_postfix: str = POSTFIX,
        name: str | None = None,
    ) -> None:
        if not aux_generators or _TOKENS in aux_generators:
            raise OptionError(
                f"aux_generators={list(aux_generators)}: expected the names of one array or more, "
                "none of them 'tokens'. TokenizedSampleGenerator makes samples of tokens alone."
            )
        self._parts = process_parts_func
        self._aux = dict(sorted(aux_generators.items()))
        stored = token_dtype, sample_size, base_output_path, file_name_postfix
        super().__init__(bytes.decode, tokenizer_func, eos_idx, *stored, name)

    @property
    def _row(self) -> np.dtype[Any]:
        own = [(name, np.dtype(aux.dtype).newbyteorder("<")) for name, aux in self._aux.items()]
        return np.dtype([(_TOKENS, self._dtype), *own])

    def get_sample_schema(self) -> SampleSchema:
        """Return the arrays of a sample."""
        size, fields = self._pack.size or 0, (self._row.fields or {}).items()
        return SampleSchema(
            size, [ArraySpec(name, type_.name, size * at) for name, (type_, at, *_) in fields]
        )

    def _document(self, text_line: bytes) -> NDArray[Any]:
        try:
            parts = list(self._parts(text_line))
        except Exception as why:
            why.add_note(f"Raised by process_parts_func for line {self._line:,} of {self._from}.")
            raise
        return np.concatenate([np.empty(0, self._row), *map(self._part, parts)])

    def _part(self, part: Part) -> NDArray[Any]:
        ids = self._encoded(part.text)
        rows = np.empty(len(ids), self._row)
        rows[_TOKENS] = ids
        for name, aux in self._aux.items():
            values = aux.generate(part.type, len(ids), part_tokens=ids.tolist())
            if len(values) != len(ids):
                raise OptionError(
                    f"aux_generators[{name!r}] made {len(values):,} values for a part of "
                    f"{len(ids):,} tokens (line {self._line:,} of {self._from}); a token has one."
                )
            rows[name] = values
        return rows

    def _end(self) -> NDArray[Any]:
        values = (aux.generate_for_eos() for aux in self._aux.values())
        return np.array([(self._eos, *values)], self._row)

    def _stored(self, sample: NDArray[Any]) -> bytes:
        return b"".join(sample[name].tobytes() for name in self._row.names or ())


def create_tokenize_and_index_with_aux_func(  # noqa: PLR0913, PLR0917 (as data-forager has it)
    process_parts_func: ProcessPartsFunc,
    tokenizer_func: Callable[..., Any] | object,
    eos_idx: int,
    aux_generators: Mapping[str, AuxDataGenerator],
    input_base_path: Path | None = None,
    input_file_paths: Sequence[Path] | None = None,
    output_base_path: Path | None = None,
    index_store: IndexStoreInterface | None = None,
    logger: logging.Logger | None = None,  # noqa: ARG001 (accepted for code that passes it)
    name: str | None = None,
    *,
    base_output_path: Path | None = None,
    **sample_generator_kwargs: Any,  # noqa: ANN401 (of several types)
) -> FileTextLinesIndexer:
    r"""Return an indexer that makes samples of tokens and further arrays of local JSON Lines files.

    `sample_generator_kwargs` are those of `TokenizedSampleWithAuxGenerator`; the other arguments
    are those of `create_tokenize_and_index_jsonl_text_func`, which is faster and has no arrays.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = {"parts": [{"type": "prompt", "text": "Hi"}, {"type": "response", "text": "Yes"}]}
    >>> _ = (folder / "a.jsonl").write_text(json.dumps(line) + "\n")
    >>> create_tokenize_and_index_with_aux_func(
    ...     lambda line: [Part(**part) for part in json.loads(line)["parts"]],
    ...     lambda text: list(text.encode()),
    ...     0,
    ...     {"loss_mask": LossMaskGenerator()},
    ...     folder,
    ...     sample_size=6,
    ... )()
    >>> import penstock
    >>> penstock.open(folder)[0]["loss_mask"]
    array([1, 1, 0, 0, 0, 0], dtype=uint8)
    """
    options = StorageOptions()
    listing = listed_lines(given_input(input_base_path, input_file_paths), options)
    output = input_base_path if output_base_path is None else output_base_path
    place, folder = token_places(output, base_output_path, index_store, options)
    generator = TokenizedSampleWithAuxGenerator(
        process_parts_func,
        tokenizer_func,
        eos_idx,
        aux_generators,
        base_output_path=folder,
        **sample_generator_kwargs,
    )
    paths = [found.path for found in listing.files]
    store = IndexStore(place.base) if index_store is None else index_store
    return FileTextLinesIndexer(paths, store, generator, "tokenising", name)
