"""Images for the tests of binaries, compiled once a session."""

from __future__ import annotations

import pytest
from binaries_images import Built, build_images


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    return build_images(tmp_path_factory.mktemp("images"))
