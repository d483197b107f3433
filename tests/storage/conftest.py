from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.storage.store_contract", "tests.storage.store_machine")
