"""A source at a glance: one line of text, or a small table in a notebook."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock._redact import without_secrets
from penstock._words import counted
from penstock.datasets.fields._tensor_types import type_text
from penstock.datasets.tokens._source import TOKENS, is_tokens

if TYPE_CHECKING:
    from penstock.datasets._source import Source

_SHOWN_RECORDS = 5
_SHOWN_COLUMNS = 20
_LONGEST_VALUE = 80
_LONGEST_TYPE = 40
_SHOWN_FIELDS = 12


def text_of(source: Source) -> str:
    """Return one line about a source; a fact that cannot be found now is left out."""
    facts = _facts(source)
    text = " ".join(facts[name] for name in ("kind", "records", "place") if name in facts)
    if "fingerprint" in facts:
        text += f" (fingerprint {facts['fingerprint']})"
    return f"{text}: {facts['fields']}" if facts.get("fields") else text


def html_of(source: Source) -> str:
    """Return a table of facts and one of the first records; an error is shown in their place."""
    facts = _facts(source)
    kind = escape(" ".join(facts[name] for name in ("kind", "records") if name in facts))
    rows = "".join(
        f"<tr><th>{name}</th><td>{escape(facts[name])}</td></tr>"
        for name in ("place", "fingerprint", "fields")
        if facts.get(name)
    )
    about = f"<table><caption>{kind}</caption><tbody>{rows}</tbody></table>"
    try:
        records = source.head(_SHOWN_RECORDS)
        if is_tokens(source):
            records = [{TOKENS: row[:_LONGEST_VALUE].tolist()} for row in records]
    except Exception as why:  # noqa: BLE001 (a display never fails: it shows the error)
        said = escape(_short(f"{type(why).__name__}: {why}", 1000))
        return f"<div>{about}<p>The first records cannot be read. {said}</p></div>"
    return f"<div>{about}{_records_table(records)}</div>"


def _facts(source: Source) -> dict[str, str]:
    found: dict[str, str] = {"kind": type(source).__name__}
    finders: dict[str, Callable[[Source], str]] = {
        "records": lambda source: f"of {counted(len(source), 'record')}",
        "place": _place,
        "fingerprint": _fingerprint,
        "fields": _fields,
    }
    for name, find in finders.items():
        try:
            fact = find(source)
        except Exception:  # noqa: BLE001, S112 (a display never fails: unknown facts are left out)
            continue
        if fact:
            found[name] = without_secrets(fact) if name == "place" else fact
    return found


def _place(source: Source) -> str:
    files = source.files
    if len(files) > 1:
        # The first and last in order differ as early as any two do. commonpath takes no URLs.
        shared = os.path.commonprefix([min(files), max(files)])  # noqa: RUF071 (cut at a slash)
        return f"in {len(files):,} files at {shared[: shared.rfind('/') + 1] or '.'}"
    return f"in {files[0]}" if files else ""


def _fingerprint(source: Source) -> str:
    # For records in memory it hashes everything: shown only if it is known already.
    if not source.files and "fingerprint" not in vars(source):
        return ""
    return source.fingerprint[:8] + "…"


def _fields(source: Source) -> str:
    if is_tokens(source):
        return source._about()  # noqa: SLF001 (for this page)
    specs = getattr(source, "specs", None)
    if specs is None:
        return _types(source.schema)
    # The columns are what a materialised source adds to its origin.
    columns = pa.schema([(spec.path, spec.type) for spec in specs])
    return f"columns of {_types(columns)}" if specs else "no columns"


def _types(schema: pa.Schema) -> str:
    shown = [f"{field.name} {_type(field.type)}" for field in list(schema)[:_SHOWN_FIELDS]]
    if len(schema) > _SHOWN_FIELDS:
        shown.append(f"… {counted(len(schema) - _SHOWN_FIELDS, 'field')} more")
    return ", ".join(shown)


def _type(type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        inner = ", ".join(f"{field.name} {_type(field.type)}" for field in type_)
        return "struct<…>" if len(inner) > _LONGEST_TYPE else f"struct<{inner}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{_type(type_.value_type)}>"
    return _short(type_text(type_))


def _records_table(records: Sequence[object]) -> str:
    rows = [one if isinstance(one, Mapping) else {"record": one} for one in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = names[:_SHOWN_COLUMNS]
    more = len(names) - len(shown)
    head = "".join(f"<th>{_cell(name)}</th>" for name in shown)
    lines = [[_cell(row[name]) if name in row else "" for name in shown] for row in rows]
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}{'<td>…</td>' if more else ''}</tr>"
        for line in lines
    )
    if more:
        head += f"<th>… {more:,} more</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, str):
        return escape(_short(value))
    try:
        text = repr(value[:_LONGEST_VALUE] if isinstance(value, list | bytes) else value)
    except Exception as why:  # noqa: BLE001 (the value's own code)
        text = f"{type(value).__name__} without a text: {type(why).__name__}"
    return escape(_short(text))


def _short(text: str, longest: int = _LONGEST_VALUE) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
