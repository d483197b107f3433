"""Files of other kinds than are read here: each is named for what it is, with a remedy."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress

from penstock.errors import MalformedLineError, OptionError
from penstock.jsonl._names import base_name, compression_of

HEAD_BYTES = 512
"""What is looked at of a file; a tar archive says what it is at byte 257."""
_PACKED = {
    b"\x1f\x8b\x08": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    **{b"BZh%d1AY&SY" % level: ".bz2" for level in range(1, 10)},
}
"""First bytes of compressed files, and the ending of their names."""
_EXCEL = "Save it as CSV, or give its table: {open}(pandas.read_excel({py}))"
_TFRECORD = (
    "a TFRecord file",
    "Write it as Parquet or JSON Lines, or read it with a library of yours in penstock.stream",
)
_ZIPPED = (
    (
        rb"[^/]*\.npy",
        "a file of NumPy arrays (npz)",
        "Give them as a table: {open}(pyarrow.table(dict(numpy.load({py}))))",
    ),
    (rb"\[Content_Types\]\.xml|_rels/|docProps/|xl/", "an Excel workbook", _EXCEL),
    (
        rb"[^/]+/(?:data\.pkl|\.format_version|\.data/|byteorder)",
        "a file of PyTorch",
        "Load it, and give a list of dicts: {open}([…])",
    ),
    (rb"", "a zip archive", "Unpack it: unzip {sh}"),
)
"""How the name of the first file in a zip archive begins, what the archive is, and a remedy."""
_KINDS = (
    (rb"\xfd7zXZ\0", "an xz file", "Decompress it: xz -dk {sh}"),
    (rb"\x04\x22\x4d\x18", "an lz4 file", "Decompress it: lz4 -d {sh}"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it: 7z x {sh}"),
    (rb".{257}ustar(?:\0|  \0)", "a tar archive", "Unpack it: tar -xf {sh}"),
    (
        rb"SQLite format 3\0",
        "an SQLite database",
        "Give a table of it: {open}(pandas.read_sql('SELECT * FROM …', sqlite3.connect({py})))",
    ),
    (
        rb".{8}DUCK..\0{6}",
        "a DuckDB database",
        "Give a table of it: {open}(duckdb.connect({py}).table('…').to_arrow_table())",
    ),
    (
        rb"\x93NUMPY",
        "a NumPy array (npy)",
        "Give it as a table: {open}(pyarrow.table({{'x': numpy.load({py})}}))",
    ),
    (rb"\x89HDF\r\n", "an HDF5 file", "Read it with h5py, and give a table: {open}(…)"),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook", _EXCEL),
    (
        rb"\x80[\2-\5]",
        "a pickle",
        "Load it yourself, and give a list of dicts: {open}([…])",
    ),
    (
        rb"PARE..\0\0",
        "an encrypted Parquet file",
        "Give its table: {open}(pyarrow.parquet.read_table({py}, decryption_properties=…))",
    ),
    (rb".{4}\0{4}.{4}\n", *_TFRECORD),
    (rb"version https://git-lfs\.", "a pointer of git-lfs", "Fetch the file: git lfs pull"),
    (
        rb"(?i)\s*<(?:!doctype )?html\b",
        "a web page (HTML)",
        "If it was downloaded, its address needs a login, or is not that of the file",
    ),
    (rb"\s*<\?xml\b", "an XML document", "If it was downloaded, it may be the error of a server"),
)
"""How a file begins, what it is, and a remedy."""
_BY_NAME = (
    (
        r".*\.lance",
        "a file of Lance",
        "Give the table of its folder: {open}(lance.dataset('…').to_table())",
    ),
    (r".*\.tfrecords?(?:-\d+-of-\d+)?(?:\.gz)?", *_TFRECORD),
)
_WIDE = (
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32"),
    (rb"\xff\xfe|\xfe\xff", "UTF-16"),
    (rb"(?:[\t\n\r -~]\0){2}", "UTF-16LE"),
    (rb"(?:\0[\t\n\r -~]){2}", "UTF-16BE"),
)
"""How a text begins whose letters have several bytes each."""
_ENCODINGS = {"WINDOWS-1252": "cp1252", "SHIFT_JIS": "cp932", "GB18030": "gb18030", "BIG5": "big5"}
"""Encodings of text that is not UTF-8, as iconv and Python call them. Not LATIN1: in it the quotes
and dashes of Windows are control characters, without an error."""
_ASCII = bytes(range(128))
_SHOWN = 24


def refuse_foreign(path: str, head: bytes) -> None:
    """Raise where a file is known to be something that is not read here."""
    name = base_name(path).lower()
    is_zip = head.startswith((b"PK\3\4", b"PK\5\6"))
    kinds, begin = (_ZIPPED, head[30:]) if is_zip else (_KINDS, head)
    by_bytes = (row for row in kinds if re.match(row[0], begin, re.DOTALL))
    by_name = (row for row in _BY_NAME if re.fullmatch(row[0], name))
    for _, what, remedy in (*by_bytes, *by_name):
        says = remedy.format(open="penstock.open", py=repr(path), sh=shlex.quote(path))
        raise OptionError(f"{path} is {what}, which is not read here.", remedy=f"{says}.")


def refuse_no_text(path: str, head: bytes) -> None:
    """Raise where the text of a file begins as something else than text in UTF-8 does."""
    ending = next((end for magic, end in _PACKED.items() if head.startswith(magic)), None)
    if ending is not None:
        again = " once more" if compression_of(path) else ""
        raise OptionError(
            f"{path} is compressed{again}, and its name does not say how. Rename it: {path}{ending}"
        )
    refuse_foreign(path, head)
    for begin, encoding in _WIDE:
        if re.match(begin, head):
            raise MalformedLineError(
                f"{path} is {encoding}; text is read as UTF-8.",
                remedy=f"Convert it: iconv -f {encoding} -t UTF-8 {shlex.quote(path)}",
                path=path,
                line_number=1,
                offset=0,
            )


def conversion_of(path: str, text: bytes) -> str:
    r"""Return the command that converts a file to UTF-8, by a text in it.

    Where several encodings fit, it shows the text in each.

    >>> conversion_of("a.csv", b"\x93a\x94 \x96 \x80")
    'Convert the file: iconv -f WINDOWS-1252 -t UTF-8 a.csv'
    """
    readings, foreign = {}, text.lstrip(_ASCII).rstrip()
    for encoding, codec in _ENCODINGS.items():
        with suppress(UnicodeDecodeError):
            readings[encoding] = foreign.decode(codec)[:_SHOWN]
    command = "iconv -f {} -t UTF-8 " + shlex.quote(path)
    if len(readings) == 1:
        return f"Convert the file: {command.format(*readings)}"
    shown = ", ".join(f"{encoding} {reading!r}" for encoding, reading in readings.items())
    which = f", where ENCODING is the one that reads right: {shown}, or another"
    return f"Convert the file: {command.format('ENCODING')}{which if readings else ''}"
