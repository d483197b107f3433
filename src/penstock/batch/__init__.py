"""Batches, and the contract of encoders, which make them."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.batch._batch import Batch as Batch
    from penstock.batch._batch import user_batch as user_batch
    from penstock.batch._encoder import BatchPosition as BatchPosition
    from penstock.batch._encoder import Encoder as Encoder
    from penstock.batch._encoder import SimpleEncoder as SimpleEncoder
    from penstock.batch._encoder import has_stages as has_stages
    from penstock.batch._field_encoder import FieldEncoder as FieldEncoder
    from penstock.batch._parts import Categories as Categories
    from penstock.batch._parts import Jagged as Jagged
    from penstock.batch._parts import Masked as Masked
    from penstock.batch._parts import Padded as Padded
    from penstock.batch._token_arrays import TokenRows as TokenRows
    from penstock.batch._tokens import Tokens as Tokens

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "Batch": "_batch",
        "BatchPosition": "_encoder",
        "Categories": "_parts",
        "Encoder": "_encoder",
        "FieldEncoder": "_field_encoder",
        "Jagged": "_parts",
        "Masked": "_parts",
        "Padded": "_parts",
        "SimpleEncoder": "_encoder",
        "Tokens": "_tokens",
    },
    for_rooms={
        "TokenRows": "_token_arrays",
        "has_stages": "_encoder",
        "user_batch": "_batch",
    },
)
