"""Profiles: what the fields of records hold."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.index.profile._document import decode_profile as decode_profile
    from penstock.index.profile._document import profile_text as profile_text
    from penstock.index.profile._document import read_profile as read_profile
    from penstock.index.profile._profile import Profile as Profile
    from penstock.index.profile._values import UNREADABLE as UNREADABLE

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "Profile": "_profile",
        "UNREADABLE": "_values",
        "decode_profile": "_document",
        "profile_text": "_document",
        "read_profile": "_document",
    },
)
