"""Fields of a record by their path, and values that JSON cannot hold."""

from __future__ import annotations

import base64
import datetime as dt
import math


def pick(value: object, path: str) -> object:
    """Return the value at a path of a record; None where there is none.

    >>> record = {"user": {"age": 42}, "items": [{"price": 1}, {"price": 2}], "a.b": 3}
    >>> pick(record, "user.age"), pick(record, "items[].price"), pick(record, "a.b")
    (42, [1, 2], 3)
    """
    if isinstance(value, dict) and path in value:
        return value[path]  # Also a key that has a dot in its name.
    head, dot, rest = path.partition(".")
    key, is_list, _ = head.partition("[]")
    inner = value.get(key) if isinstance(value, dict) else None
    if is_list:
        if not isinstance(inner, list):
            return None
        return [pick(item, rest) for item in inner] if dot else inner
    return pick(inner, rest) if dot else None


def without_nonfinite(value: object) -> object:
    """Return a value with NaN and infinities as None, because JSON has no number for them.

    >>> without_nonfinite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: object) -> object:
    r"""Return a value that JSON cannot hold as text: times as ISO, bytes as UTF-8 or base64.

    Arrays become lists.

    >>> as_text(dt.date(2026, 1, 31)), as_text(b"abc"), as_text(b"\xff")
    ('2026-01-31', 'abc', '/w==')
    """
    if hasattr(value, "tolist"):  # Of NumPy, which not every verb loads.
        return value.tolist()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value)
