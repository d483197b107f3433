"""Where bytes are: local paths and object stores behind one `Store`."""

from typing import TYPE_CHECKING

from penstock._lazy import facade
from penstock.storage._drafts import NO_HARD_LINKS, Leftover, drafts_in, publish_by_link, sync
from penstock.storage._environment import (
    cache_directory,
    environment,
    keep_tokenizers_to_one_thread,
    local_world_size,
    new_remote_path,
    rank,
    set_environment,
    world_size,
)
from penstock.storage._files import (
    HeldFile,
    MeteredFile,
    SeekableFile,
    open_for_reading,
    open_for_writing,
    read_blocks,
)
from penstock.storage._folders import (
    BUILDING,
    CACHE_TAG,
    COLUMNS_LOCK,
    HiddenFolder,
    bytes_and_time,
    fetch_files,
    has_builder,
    hidden_beside,
    hidden_folders_in,
    hidden_of,
    is_hidden_folder,
    is_of_columns,
    mark_as_cache,
    publish_folder,
    remove_dead,
    remove_folder,
    upload_file,
    upload_folder,
)
from penstock.storage._fork import fork_is_safe, refuse_inherited
from penstock.storage._local import LocalStore, local_path, map_of, refuse_special_file
from penstock.storage._local_errors import (
    NO_ROOM,
    free_bytes,
    no_room,
    refuse_full_disk,
    translated,
)
from penstock.storage._locate import is_pattern, join, locate, match
from penstock.storage._locks import holder_of, only_one, take
from penstock.storage._meter import InFlight, Meter, carried, current_meter, metered, reading
from penstock.storage._network import is_network
from penstock.storage._options import StorageOptions
from penstock.storage._read_ahead import ReadAhead
from penstock.storage._schemes import is_read_only, is_remote, refuse_read_only, without_query
from penstock.storage._store import Draft, Entry, OpenFile, Store, entry_at
from penstock.storage._untrusted import (
    fetch_metadata,
    is_below,
    is_plain_name,
    leads_through_link,
    open_regular,
    path_below,
    read_metadata,
    readable_metadata,
    remove_special,
    remove_tree,
)
from penstock.storage.cache._blocks import (
    Block,
    BlockCache,
    CachedFile,
    block_cache,
    block_key,
)
from penstock.storage.cache._entries import (
    CacheEntry,
    Held,
    cache_entries,
    hold_entry,
    remove_entry,
    trim_cache,
    user_of,
)

if TYPE_CHECKING:
    from penstock.storage._object import ObjectStore as ObjectStore

# It needs the object-store client, which local work never loads.
_, __getattr__, __dir__ = facade(__name__, {"_object": "ObjectStore"})

# The contract, and what fulfils it; the other names are for the other rooms.
__all__ = ["Draft", "Entry", "LocalStore", "ObjectStore", "OpenFile", "StorageOptions", "Store"]
