"""Secrets in URLs are masked in every text that a person may see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

MASK = "***"
_USER = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")
_SIGNATURE = re.compile(
    r"([?&](?:[\w%.-]*(?:signature|token|secret|passw|credential|accesskey|api.?key|auth)[\w%.-]*"
    r"|(?:[\w%.-]*[-_.])?(?:sig|key|pwd|policy|jwt|session))=)"
    r"([^&#\s'\"<>]+?)(?=[,;.)]*(?:[&#\s'\"<>]|$))",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text with users, passwords and signatures of its URLs masked.

    >>> without_secrets("https://me:hush@host/a?page=1&X-Amz-Signature=1f2e, hf://token@datasets/x")
    'https://***@host/a?page=1&X-Amz-Signature=***, hf://***@datasets/x'
    """
    if "://" not in text:
        return text
    return _SIGNATURE.sub(rf"\1{MASK}", _USER.sub(MASK, text))


def mask_all(document: object) -> object:
    """Return a document with the texts in its dicts and lists masked."""
    if isinstance(document, dict):
        return {name: mask_all(value) for name, value in document.items()}
    if isinstance(document, list):
        return [mask_all(value) for value in document]
    return without_secrets(document) if isinstance(document, str) else document


def secrets_in(url: str) -> Iterator[str]:
    """Yield what `without_secrets` masks."""
    yield from (part for user in _USER.findall(url) for part in user.split(":"))
    yield from (value for _, value in _SIGNATURE.findall(url))


def mask_in_logs(name: str) -> None:
    """Mask the records of a logger."""
    import logging  # noqa: PLC0415 (`import penstock` does without it)

    logging.getLogger(name).addFilter(_mask_record)  # A second time it changes nothing.


def _mask_record(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if (shown := without_secrets(text)) != text:
        record.msg, record.args = shown, ()
    return True
