"""What holds for every batch of a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SchemaMismatchError
from penstock.schema._nodes import TensorKey, ValueState
from penstock.schema._splits import split_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.schema._tree import Tree


def check_batch(model: Any, batch: Mapping[str, Any], strata: str) -> None:
    """Raise where a batch is not what a schema promises; `model` has `hyperparameters`."""
    tree: Tree = model.hyperparameters
    is_predicting = split_named(strata) == "predict"
    expected = {str(at) for at in tree.active_requests}
    expected |= {str(TensorKey.metadata)} if is_predicting else set()
    for problem in _problems(tree, batch, expected, is_predicting=is_predicting):
        raise SchemaMismatchError(f"a batch for {strata}: {problem}.")


def _problems(
    tree: Tree, batch: Mapping[str, Any], expected: set[str], *, is_predicting: bool
) -> Iterator[str]:
    if set(batch.keys()) != expected:
        wrong = sorted(set(batch.keys()) ^ expected)
        yield f"it has not exactly the active leaves: {', '.join(wrong)}"
        return
    valid = getattr(batch, "valid", None)
    for address, leaf in tree.active_requests.items():
        field, shape = batch[address], (len(batch[address].state), *tree.shapes[address])
        problem = _misshapen(field, shape) or _badly_hidden(
            field, valid, is_target=leaf.target, is_predicting=is_predicting
        )
        if problem:
            yield f"{address}: {problem}"


def _misshapen(field: Any, shape: tuple[int, ...]) -> str | None:
    """Return what is wrong with the shapes and types of a field."""
    state, trainable = field.state, field.trainable
    if tuple(state.shape) != shape or state.is_floating_point():
        return f"state is {state.dtype} {tuple(state.shape)}, not integers {shape}"
    if state.numel() and (int(state.min()) < 0 or int(state.max()) > max(ValueState)):
        return f"state has codes beyond 0 to {max(ValueState):d}"
    if tuple(trainable.shape) != shape or str(trainable.dtype) != "torch.bool":
        return f"trainable is {trainable.dtype} {tuple(trainable.shape)}, not bool {shape}"
    content = field.content
    if trainable.device != state.device:
        return "state and trainable lie on different devices"
    for part in content.values() if isinstance(content, dict) else [content]:
        if tuple(part.shape[: len(shape)]) != shape or part.device != state.device:
            return f"content does not begin with the slots {shape}"
    return None


def _badly_hidden(field: Any, valid: Any, *, is_target: bool, is_predicting: bool) -> str | None:
    """Return what is wrong with the hidden slots of a field, in rows that count."""
    rows = slice(None) if valid is None else valid
    hidden, trainable = field.state[rows] == ValueState.masked, field.trainable[rows]
    if bool((trainable & ~hidden).any()):
        return "a slot to predict is not hidden"
    if not is_predicting and bool((hidden & ~trainable).any()):
        return "a hidden slot is not to be predicted"
    if bool(trainable.any()):
        if {"state", "content"} - set(field.targets):
            return "hidden slots have no targets"
        if bool((field.targets["state"][rows][trainable] == ValueState.masked).any()):
            return "a target is itself hidden"
    if is_target and not is_predicting and len(hidden) and not bool(trainable.any()):
        return "a target is not to be predicted"
    return "a target is not hidden" if is_target and not bool(hidden.all()) else None
