"""Where bytes are: local paths and object stores behind one `Store`."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.storage._cache_mark import CACHE_TAG as CACHE_TAG
    from penstock.storage._cache_mark import mark_as_cache as mark_as_cache
    from penstock.storage._drafts import NO_HARD_LINKS as NO_HARD_LINKS
    from penstock.storage._drafts import Leftover as Leftover
    from penstock.storage._drafts import drafts_in as drafts_in
    from penstock.storage._drafts import sync as sync
    from penstock.storage._environment import cache_directory as cache_directory
    from penstock.storage._environment import (
        keep_tokenizers_to_one_thread as keep_tokenizers_to_one_thread,
    )
    from penstock.storage._environment import new_remote_path as new_remote_path
    from penstock.storage._environment import rank as rank
    from penstock.storage._environment import world_size as world_size
    from penstock.storage._files import HeldFile as HeldFile
    from penstock.storage._files import MeteredFile as MeteredFile
    from penstock.storage._files import SeekableFile as SeekableFile
    from penstock.storage._files import open_for_reading as open_for_reading
    from penstock.storage._files import open_for_writing as open_for_writing
    from penstock.storage._files import read_blocks as read_blocks
    from penstock.storage._folders import BUILDING as BUILDING
    from penstock.storage._folders import COLUMNS_LOCK as COLUMNS_LOCK
    from penstock.storage._folders import HiddenFolder as HiddenFolder
    from penstock.storage._folders import bytes_and_time as bytes_and_time
    from penstock.storage._folders import fetch_files as fetch_files
    from penstock.storage._folders import has_builder as has_builder
    from penstock.storage._folders import hidden_beside as hidden_beside
    from penstock.storage._folders import hidden_folders_in as hidden_folders_in
    from penstock.storage._folders import hidden_of as hidden_of
    from penstock.storage._folders import is_hidden_folder as is_hidden_folder
    from penstock.storage._folders import is_of_columns as is_of_columns
    from penstock.storage._folders import publish_folder as publish_folder
    from penstock.storage._folders import remove_dead as remove_dead
    from penstock.storage._folders import remove_folder as remove_folder
    from penstock.storage._folders import upload_file as upload_file
    from penstock.storage._folders import upload_folder as upload_folder
    from penstock.storage._fork import fork_is_safe as fork_is_safe
    from penstock.storage._fork import refuse_inherited as refuse_inherited
    from penstock.storage._glob import is_pattern as is_pattern
    from penstock.storage._glob import match as match
    from penstock.storage._local import LocalStore as LocalStore
    from penstock.storage._local import refuse_special_file as refuse_special_file
    from penstock.storage._local_errors import NO_ROOM as NO_ROOM
    from penstock.storage._local_errors import no_room as no_room
    from penstock.storage._local_errors import refuse_full_disk as refuse_full_disk
    from penstock.storage._local_errors import translated as translated
    from penstock.storage._locate import is_remote as is_remote
    from penstock.storage._locate import join as join
    from penstock.storage._locate import locate as locate
    from penstock.storage._locks import holder_of as holder_of
    from penstock.storage._locks import only_one as only_one
    from penstock.storage._locks import take as take
    from penstock.storage._meter import InFlight as InFlight
    from penstock.storage._meter import Meter as Meter
    from penstock.storage._meter import carried as carried
    from penstock.storage._meter import current_meter as current_meter
    from penstock.storage._meter import metered as metered
    from penstock.storage._meter import reading as reading
    from penstock.storage._object import ObjectStore as ObjectStore
    from penstock.storage._options import StorageOptions as StorageOptions
    from penstock.storage._read_ahead import ReadAhead as ReadAhead
    from penstock.storage._store import Draft as Draft
    from penstock.storage._store import Entry as Entry
    from penstock.storage._store import OpenFile as OpenFile
    from penstock.storage._store import Store as Store
    from penstock.storage._untrusted import fetch_metadata as fetch_metadata
    from penstock.storage._untrusted import is_below as is_below
    from penstock.storage._untrusted import is_plain_name as is_plain_name
    from penstock.storage._untrusted import leads_through_link as leads_through_link
    from penstock.storage._untrusted import open_regular as open_regular
    from penstock.storage._untrusted import path_below as path_below
    from penstock.storage._untrusted import read_metadata as read_metadata
    from penstock.storage._untrusted import readable_metadata as readable_metadata
    from penstock.storage._untrusted import remove_special as remove_special
    from penstock.storage._untrusted import remove_tree as remove_tree
    from penstock.storage.cache._blocks import Block as Block
    from penstock.storage.cache._blocks import BlockCache as BlockCache
    from penstock.storage.cache._blocks import block_cache as block_cache
    from penstock.storage.cache._blocks import block_key as block_key
    from penstock.storage.cache._entries import CacheEntry as CacheEntry
    from penstock.storage.cache._entries import Held as Held
    from penstock.storage.cache._entries import cache_entries as cache_entries
    from penstock.storage.cache._entries import hold_entry as hold_entry
    from penstock.storage.cache._entries import remove_entry as remove_entry
    from penstock.storage.cache._entries import trim_cache as trim_cache
    from penstock.storage.cache._store import CachedStore as CachedStore

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "Block": "cache._blocks",
        "BlockCache": "cache._blocks",
        "CachedStore": "cache._store",
        "Draft": "_store",
        "Entry": "_store",
        "HeldFile": "_files",
        "InFlight": "_meter",
        "LocalStore": "_local",
        "Meter": "_meter",
        "MeteredFile": "_files",
        "ObjectStore": "_object",
        "OpenFile": "_store",
        "ReadAhead": "_read_ahead",
        "SeekableFile": "_files",
        "StorageOptions": "_options",
        "Store": "_store",
        "block_cache": "cache._blocks",
        "block_key": "cache._blocks",
        "cache_directory": "_environment",
        "carried": "_meter",
        "current_meter": "_meter",
        "fork_is_safe": "_fork",
        "is_pattern": "_glob",
        "is_remote": "_locate",
        "join": "_locate",
        "locate": "_locate",
        "match": "_glob",
        "metered": "_meter",
        "new_remote_path": "_environment",
        "open_for_reading": "_files",
        "open_for_writing": "_files",
        "rank": "_environment",
        "read_blocks": "_files",
        "reading": "_meter",
        "refuse_inherited": "_fork",
        "refuse_special_file": "_local",
        "world_size": "_environment",
    },
    for_rooms={
        "BUILDING": "_folders",
        "CacheEntry": "cache._entries",
        "CACHE_TAG": "_cache_mark",
        "COLUMNS_LOCK": "_folders",
        "Held": "cache._entries",
        "HiddenFolder": "_folders",
        "Leftover": "_drafts",
        "NO_HARD_LINKS": "_drafts",
        "NO_ROOM": "_local_errors",
        "bytes_and_time": "_folders",
        "cache_entries": "cache._entries",
        "drafts_in": "_drafts",
        "fetch_files": "_folders",
        "fetch_metadata": "_untrusted",
        "has_builder": "_folders",
        "hidden_beside": "_folders",
        "hidden_folders_in": "_folders",
        "hidden_of": "_folders",
        "hold_entry": "cache._entries",
        "holder_of": "_locks",
        "is_below": "_untrusted",
        "is_hidden_folder": "_folders",
        "is_of_columns": "_folders",
        "is_plain_name": "_untrusted",
        "keep_tokenizers_to_one_thread": "_environment",
        "leads_through_link": "_untrusted",
        "mark_as_cache": "_cache_mark",
        "no_room": "_local_errors",
        "only_one": "_locks",
        "open_regular": "_untrusted",
        "path_below": "_untrusted",
        "publish_folder": "_folders",
        "read_metadata": "_untrusted",
        "readable_metadata": "_untrusted",
        "refuse_full_disk": "_local_errors",
        "remove_dead": "_folders",
        "remove_entry": "cache._entries",
        "remove_folder": "_folders",
        "remove_special": "_untrusted",
        "remove_tree": "_untrusted",
        "sync": "_drafts",
        "take": "_locks",
        "translated": "_local_errors",
        "trim_cache": "cache._entries",
        "upload_file": "_folders",
        "upload_folder": "_folders",
    },
)
