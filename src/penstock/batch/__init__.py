"""Batches, and the contract of encoders, which make them."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.batch._batch import Batch as Batch
    from penstock.batch._batch import user_batch
    from penstock.batch._encoder import LOOSE as LOOSE
    from penstock.batch._encoder import STAND_INS as STAND_INS
    from penstock.batch._encoder import BatchPosition as BatchPosition
    from penstock.batch._encoder import Encoder as Encoder
    from penstock.batch._encoder import SimpleEncoder as SimpleEncoder
    from penstock.batch._encoder import has_stages, read_columns
    from penstock.batch._field_encoder import FieldEncoder as FieldEncoder
    from penstock.batch._parts import Categories as Categories
    from penstock.batch._parts import Jagged as Jagged
    from penstock.batch._parts import Masked as Masked
    from penstock.batch._parts import Movable, tensor, torch_library
    from penstock.batch._parts import Padded as Padded
    from penstock.batch._token_arrays import TokenRows
    from penstock.batch._tokens import Tokens as Tokens

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_batch": "Batch",
        "_encoder": "BatchPosition Encoder LOOSE STAND_INS SimpleEncoder",
        "_field_encoder": "FieldEncoder",
        "_parts": "Categories Jagged Masked Padded",
        "_tokens": "Tokens",
    },
    for_rooms={
        "_batch": "user_batch",
        "_encoder": "has_stages read_columns",
        "_parts": "Movable tensor torch_library",
        "_token_arrays": "TokenRows",
    },
)
