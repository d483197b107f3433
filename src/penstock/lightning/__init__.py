"""Lightning data modules over `penstock.DataLoader`, and a writer of predictions.

With `import penstock.lightning as j2v`, programs written for json2vec find their names here.
"""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.lightning._frames import CustomDataModule as CustomDataModule
    from penstock.lightning._frames import PolarsDataModule as PolarsDataModule
    from penstock.lightning._mixin import SchemaMixin as SchemaMixin
    from penstock.lightning._options import EngineOptions as EngineOptions
    from penstock.lightning._options import ShardingStrategy as ShardingStrategy
    from penstock.lightning._options import Suffix as Suffix
    from penstock.lightning._plain import DataModule as DataModule
    from penstock.lightning._preprocess import PREPROCESSORS as PREPROCESSORS
    from penstock.lightning._preprocess import Preprocessor as Preprocessor
    from penstock.lightning._preprocess import PreprocessorMode as PreprocessorMode
    from penstock.lightning._preprocess import preprocess as preprocess
    from penstock.lightning._streaming import StreamingDataModule as StreamingDataModule
    from penstock.lightning._trainer_ranks import shard_info as shard_info
    from penstock.lightning._writer import Writer as Writer
    from penstock.schema import Address as Address
    from penstock.schema import Array as Array
    from penstock.schema import BadSlotError as BadSlotError
    from penstock.schema import Category as Category
    from penstock.schema import DateParts as DateParts
    from penstock.schema import Entity as Entity
    from penstock.schema import Leaf as Leaf
    from penstock.schema import Number as Number
    from penstock.schema import Overflow as Overflow
    from penstock.schema import RunningStats as RunningStats
    from penstock.schema import Schema as Schema
    from penstock.schema import SchemaModel as SchemaModel
    from penstock.schema import Set as Set
    from penstock.schema import SlotValues as SlotValues
    from penstock.schema import Strata as Strata
    from penstock.schema import TensorKey as TensorKey
    from penstock.schema import Text as Text
    from penstock.schema import Tokens as Tokens
    from penstock.schema import ValueState as ValueState
    from penstock.schema import Vector as Vector
    from penstock.schema import check_batch as check_batch
    from penstock.schema import fit_vocabulary as fit_vocabulary
    from penstock.schema import load_schema as load_schema
    from penstock.schema import predicate as predicate
    from penstock.schema import register_leaf as register_leaf
    from penstock.schema import where as where

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_frames": "CustomDataModule PolarsDataModule",
        "_mixin": "SchemaMixin",
        "_options": "EngineOptions ShardingStrategy Suffix",
        "_plain": "DataModule",
        "_preprocess": "PREPROCESSORS Preprocessor PreprocessorMode preprocess",
        "_streaming": "StreamingDataModule",
        "_trainer_ranks": "shard_info",
        "_writer": "Writer",
        ".schema": (
            "Address Array BadSlotError Category DateParts Entity Leaf Number Overflow "
            "RunningStats Schema SchemaModel Set SlotValues Strata TensorKey Text Tokens "
            "ValueState Vector check_batch fit_vocabulary load_schema predicate register_leaf where"
        ),
    },
)
