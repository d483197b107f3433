"""Profiles: what the fields of records hold."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.index.profile._document import decode_profile, profile_text, read_profile
    from penstock.index.profile._profile import Profile
    from penstock.index.profile._values import UNREADABLE

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_document": "decode_profile profile_text read_profile",
        "_profile": "Profile",
        "_values": "UNREADABLE",
    },
)
